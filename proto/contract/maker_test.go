package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"runlog/proto/contract/jsontext"
)

// maker makes payloads from a schema, as a schema is read by hand: nothing here is shared with what
// compiles schemas to rules.
type maker struct {
	pick func(n int) int // a choice of 0 to n-1
	defs map[string]any
	// sites are the ways to break the last value that was made, one at a time.
	sites []site
}

// site breaks a value in one place, so that the judge must complain at one pointer and no other.
type site struct {
	at    string
	apply func()
}

// tree is a JSON value that can still be changed.
type tree struct {
	raw     string // of a scalar
	open    byte   // { or [ of the others
	members []treeMember
}

type treeMember struct {
	name  string
	value *tree
}

func newMaker(line Line, name string, pick func(int) int) (*maker, map[string]any) {
	text, _ := Schema(line, name)
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		panic(err)
	}
	inForce(schema)
	defs, _ := schema["$defs"].(map[string]any)
	return &maker{pick: pick, defs: defs}, schema
}

func (m *maker) chance(percent int) bool { return m.pick(100) < percent }

func (m *maker) oneOf(of ...string) string { return of[m.pick(len(of))] }

// value makes a valid value and notes its sites.
func (m *maker) value(schema map[string]any, at string) *tree {
	if ref, ok := schema["$ref"].(string); ok {
		schema = m.defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	t := &tree{}
	types := typesOf(schema)
	if len(types) == 0 {
		*t = *m.anything(2)
		return t
	}
	m.wrongType(t, types, at)
	switch types[m.pick(len(types))] {
	case "object":
		m.object(t, schema, at)
	case "array":
		t.open = '['
		for n := range m.pick(4) {
			t.members = append(t.members, treeMember{"", m.value(schema["items"].(map[string]any), at+"/"+strconv.Itoa(n))})
		}
	case "string":
		m.text(t, schema, at)
	case "integer":
		t.raw = m.oneOf("0", "1", "184320", "9223372036854775808", "1.0", "1e3", "12.50E1", "-0", "0.0e-7", "1E+20", "-0e0", "100e-2")
		m.breaks(at, t, `1.5`, `1e-1`, `-1`, `-10e1`, `0.1e0`, `1e1000001`, `1e99999999999999999999`)
	case "boolean":
		t.raw = m.oneOf("true", "false")
	default:
		panic(fmt.Sprint(types))
	}
	return t
}

func typesOf(schema map[string]any) []string {
	switch v := schema["type"].(type) {
	case string:
		return []string{v}
	case []any:
		var types []string
		for _, name := range v {
			types = append(types, name.(string))
		}
		return types
	}
	if schema["enum"] != nil || schema["const"] != nil {
		return []string{"string"}
	}
	return nil
}

// breaks notes that t is broken by each of some values.
func (m *maker) breaks(at string, t *tree, raws ...string) {
	for _, raw := range raws {
		m.sites = append(m.sites, site{at, func() { *t = tree{raw: raw} }})
	}
}

func (m *maker) wrongType(t *tree, types []string, at string) {
	for _, other := range [...][2]string{{"object", `{"a":1}`}, {"array", `[]`}, {"string", `"7"`}, {"integer", `7`}, {"boolean", `true`}, {"null", `null`}} {
		if !slices.Contains(types, other[0]) {
			m.breaks(at, t, other[1])
		}
	}
}

func (m *maker) object(t *tree, schema map[string]any, at string) {
	t.open = '{'
	must := make(map[string]bool)
	for _, name := range list(schema["required"]) {
		must[name] = true
		m.sites = append(m.sites, site{at + "/" + name, func() { t.remove(name) }})
	}
	if either, ok := schema["anyOf"].([]any); ok {
		var all []string
		for _, alternative := range either {
			all = append(all, list(alternative.(map[string]any)["required"])...)
		}
		must[all[m.pick(len(all))]] = true
		m.sites = append(m.sites, site{at, func() {
			for _, name := range all {
				t.remove(name)
			}
		}})
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if must[name] || m.chance(60) {
			t.members = append(t.members, treeMember{name, m.value(properties[name].(map[string]any), at+"/"+name)})
		}
	}
	for range m.pick(3) {
		name := m.oneOf("x", "é", "", "data", "Status", "errors", "a/b", "~", "\u2028", strings.Repeat("n", 40), "artifact", "outcom")
		if properties[name] == nil {
			t.members = append(t.members, treeMember{name, m.anything(2)})
		}
	}
	for i := range t.members {
		j := i + m.pick(len(t.members)-i)
		t.members[i], t.members[j] = t.members[j], t.members[i]
	}
}

func list(v any) (names []string) {
	all, _ := v.([]any)
	for _, name := range all {
		names = append(names, name.(string))
	}
	return names
}

func (t *tree) remove(name string) {
	t.members = slices.DeleteFunc(t.members, func(m treeMember) bool { return m.name == name })
}

func (m *maker) text(t *tree, schema map[string]any, at string) {
	words := list(schema["enum"])
	if word, ok := schema["const"].(string); ok {
		words = []string{word}
	}
	pattern, _ := schema["pattern"].(string)
	switch {
	case words != nil:
		t.raw = m.quoted(m.oneOf(words...))
		m.breaks(at, t, `""`, `"success"`, `"RUNNING "`, `"\ud800"`, m.quoted(words[0]+"x"))
	case schema["format"] == "date-time":
		t.raw = m.quoted(m.oneOf("2026-02-11T10:30:00Z", "2024-02-29t23:59:60z", "0000-02-29T00:00:00.123456789012345-23:59",
			"2026-02-11T10:30:00.0+05:30", "9999-12-31T22:59:60.5-01:00", "2026-01-01T00:59:60+01:00"))
		m.breaks(at, t, `""`, `"2026-02-11"`, `"2025-02-29T00:00:00Z"`, `"2026-02-11T24:00:00Z"`, `"2026-02-11T10:30:00"`, `"2026-02-11 10:30:00Z"`,
			`"2026-02-11T10:30:60Z"`, `"2026-02-11T+1:30:00Z"`, `"2026-02-11T10:30:00,5Z"`, `"2026-02-11T10:30:00.Z"`, `"2026-02-11T10:30:00+0100"`, `"2026-13-01T00:00:00Z"`)
	case strings.Contains(pattern, "64"):
		digits := strings.Repeat(m.oneOf("0", "a", "F", "9"), 64)
		t.raw = m.quoted(digits)
		m.breaks(at, t, `""`, `"..."`, strconv.Quote(digits[1:]), strconv.Quote(digits+"0"), strconv.Quote(digits[1:]+"g"), strconv.Quote(digits)[:65]+`\n"`)
	case pattern != "":
		panic(pattern)
	default:
		t.raw = m.quoted(m.oneOf("x", " ", "s3://bucket/é", "\"\\\n", "😀", "plan_xyz"))
	}
	if schema["minLength"] != nil {
		m.breaks(at, t, `""`)
	}
}

// anything makes any JSON value, nested at most depth levels.
func (m *maker) anything(depth int) *tree {
	kind := m.pick(6)
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		return &tree{raw: m.oneOf("null", "true", "false")}
	case 1:
		return &tree{raw: m.oneOf("0", "-1", "1.5e300", "1e400", "-0", "12345678901234567890")}
	case 2, 3:
		return &tree{raw: m.quoted(m.oneOf("", "x", "\u0000", "RUNNING", "\\", "\ufffd"))}
	case 4:
		t := &tree{open: '['}
		for range m.pick(3) {
			t.members = append(t.members, treeMember{"", m.anything(depth - 1)})
		}
		return t
	}
	t := &tree{open: '{'}
	for n := range m.pick(3) {
		t.members = append(t.members, treeMember{m.oneOf("uri", "kind", "message", "a") + strconv.Itoa(n), m.anything(depth - 1)})
	}
	return t
}

// quoted writes a string, with an escape where none is needed now and then.
func (m *maker) quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r >= 0x20 && r < 0x10000 && m.pick(40) == 0:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			quoted := jsontext.AppendQuoted(nil, string(r))
			b.Write(quoted[1 : len(quoted)-1])
		}
	}
	b.WriteByte('"')
	return b.String()
}

// write writes a value, with white space and with superseded duplicates of members now and then.
func (m *maker) write(b *strings.Builder, t *tree) {
	space := func() {
		if m.pick(30) == 0 {
			b.WriteString(m.oneOf(" ", "\n", "\t\r\n"))
		}
	}
	space()
	defer space()
	if t.open == 0 {
		b.WriteString(t.raw)
		return
	}
	b.WriteByte(t.open)
	for i, member := range t.members {
		if i > 0 {
			b.WriteByte(',')
		}
		space()
		if t.open == '{' {
			if m.pick(30) == 0 {
				b.WriteString(m.quoted(member.name) + ":")
				m.write(b, m.anything(2))
				b.WriteByte(',')
			}
			b.WriteString(m.quoted(member.name))
			space()
			b.WriteByte(':')
		}
		m.write(b, member.value)
	}
	space()
	b.WriteByte(t.open + 2) // } and ] are two behind { and [
}

// payload makes a valid payload of a known type.
func (m *maker) payload(schema map[string]any) *tree {
	m.sites = m.sites[:0]
	return m.value(schema, "")
}

func (m *maker) written(t *tree) []byte {
	var b strings.Builder
	m.write(&b, t)
	return []byte(b.String())
}
