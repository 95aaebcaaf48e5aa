package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func samePayloads(a, b string) bool {
	return SameContent(&Event{Payload: []byte(a)}, &Event{Payload: []byte(b)})
}

func TestIDM7PayloadsAsJSONValues(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"equal bytes", `{"a":1}`, `{"a":1}`, true},
		{"white space", `{"a":[1,2]}`, " {\n\t\"a\" : [ 1 , 2 ] }\r\n", true},
		{"order of members", `{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"a":1}`, true},
		{"order of elements", `{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{"fewer elements", `{"a":[1,2]}`, `{"a":[1]}`, false},
		{"nested arrays", `{"a":[[1],2]}`, `{"a":[[1,2]]}`, false},
		{"empty containers", `{"a":{},"b":[]}`, `{"b":[ ],"a":{ }}`, true},
		{"object or array", `{"a":{}}`, `{"a":[]}`, false},
		{"missing member", `{"a":1,"b":2}`, `{"a":1}`, false},
		{"null is not missing", `{"a":null}`, `{}`, false},
		{"last duplicate wins", `{"a":1,"b":0,"a":2}`, `{"b":0,"a":2}`, true},
		{"first duplicate loses", `{"a":1,"a":2}`, `{"a":1}`, false},
		{"duplicates by escape", `{"a":1,"\u0061":2}`, `{"a":2}`, true},
		{"escapes", `{"k":"\u00e9\/\n\ud83d\ude00"}`, "{\"k\":\"é/\\u000A😀\"}", true},
		{"short escapes", `{"k":"\b\f\n\r\t\"\\\/"}`, `{"k":"\u0008\u000c\u000A\u000d\u0009\u0022\u005c\u002f"}`, true},
		{"many duplicates", `{` + strings.Repeat(`"b":0,"a":1,`, 20) + `"a":2,"b":3}`, `{"a":2,"b":3}`, true},
		{"escaped name", `{"\u006b":1}`, `{"k":1}`, true},
		{"composed and decomposed", "{\"k\":\"\u00e9\"}", "{\"k\":\"e\u0301\"}", false},
		{"half a pair is not its replacement", `{"k":"\ud83d"}`, `{"k":"\ufffd"}`, false},
		{"other half a pair", `{"k":"\ud83d"}`, `{"k":"\ud83e"}`, false},
		{"two halves in the wrong order", `{"k":"\ude00\ud83d"}`, `{"k":"😀"}`, false},
		{"string or number", `{"k":"1"}`, `{"k":1}`, false},
		{"true or false", `{"k":true}`, `{"k":false}`, false},
		{"false or null", `{"k":false}`, `{"k":null}`, false},
		{"names that end alike", `{"ab":"c"}`, `{"a":"bc"}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := samePayloads(c.a, c.b); got != c.same {
				t.Errorf("%s and %s: same %v, want %v", c.a, c.b, got, c.same)
			}
			if samePayloads(c.b, c.a) != c.same {
				t.Error("not symmetric")
			}
		})
	}
}

func TestIDM7NumbersAsDecimals(t *testing.T) {
	classes := [][]string{
		{"0", "-0", "0.0", "0e5", "-0.00E-7", "0e99999999999999999999"},
		{"1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000e-0", "0.0001e4"},
		{"-1", "-1.0", "-10e-1"},
		{"100", "1e2", "1E+02", "100.00", "1000e-1"},
		{"0.001", "1e-3", "0.1e-2"},
		{"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
		{"9007199254740992"},
		{"123456789012345678901234567890", "123456789012345678901234567890.0", "1.2345678901234567890123456789e29"},
		{"123456789012345678901234567891"},
		{"0.1"}, {"0.10000000000000001"},
		{"1e400"}, {"1e401", "10e400"},
		{"1e-400"},
		{"1e999999999999999999"}, {"1e1000000000000000000", "1e01000000000000000000"}, {"1e-1000000000000000000"},
	}
	for i, class := range classes {
		for j, other := range classes {
			for _, a := range class {
				for _, b := range other {
					if got := samePayloads(`{"n":`+a+`}`, `{"n":`+b+`}`); got != (i == j) {
						t.Errorf("%s and %s: same %v", a, b, got)
					}
				}
			}
		}
	}
}

func TestIDM7ResolvedFieldsAreCompared(t *testing.T) {
	sparse := goldenEvents()["sparse"]
	named := *sparse
	named.Absent = 0
	if !SameContent(sparse, &named) {
		t.Error("a field that is named and one that is inherited differ")
	}
	named.PlanVersion = "1.3"
	if SameContent(sparse, &named) {
		t.Error("another plan version does not count")
	}
}

// Bytes that no validated event holds must not bring the comparison down.
func TestIDM7NoJSON(t *testing.T) {
	for _, bad := range []string{"", "[", "{", `{"a"`, `{"a":`, `{"a":1`, "[1]", "null", `{"a":"` + "\xff" + `"}`} {
		if samePayloads(bad, `{"a":1}`) || samePayloads(`{"a":1}`, bad) || !samePayloads(bad, bad) {
			t.Errorf("%q", bad)
		}
	}
}

// drawJSON draws a JSON value: nil, bool, json.Number, string, []any or map[string]any.
func drawJSON(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return json.Number(fmt.Sprintf("%de%d", rapid.Int64().Draw(t, "digits"), rapid.IntRange(-400, 400).Draw(t, "exponent")))
	case 3:
		return rapid.String().Draw(t, "string")
	case 4:
		list := make([]any, rapid.IntRange(0, 4).Draw(t, "length"))
		for i := range list {
			list[i] = drawJSON(t, depth-1)
		}
		return list
	default:
		return drawObject(t, depth)
	}
}

func drawObject(t *rapid.T, depth int) map[string]any {
	object := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		object[rapid.String().Draw(t, "name")] = drawJSON(t, depth-1)
	}
	return object
}

// spell writes a value in one of its many spellings.
func spell(t *rapid.T, b *bytes.Buffer, v any) {
	space := func() { b.WriteString(rapid.SampledFrom([]string{"", "", " ", "\n", "\t\r"}).Draw(t, "space")) }
	space()
	switch v := v.(type) {
	case json.Number:
		spellNumber(t, b, string(v))
	case string:
		spellString(t, b, v)
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			spell(t, b, e)
		}
		space()
		b.WriteByte(']')
	case map[string]any:
		spellObject(t, b, v)
	default:
		text, _ := json.Marshal(v)
		b.Write(text)
	}
	space()
}

func spellObject(t *rapid.T, b *bytes.Buffer, v map[string]any) {
	names := slices.Sorted(maps.Keys(v))
	if len(names) > 1 {
		names = rapid.Permutation(names).Draw(t, "order")
	}
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		if rapid.IntRange(0, 3).Draw(t, "duplicate") == 0 {
			spellString(t, b, name)
			b.WriteString(`:["loses"],`)
		}
		spellString(t, b, name)
		b.WriteByte(':')
		spell(t, b, v[name])
	}
	b.WriteByte('}')
}

func spellString(t *rapid.T, b *bytes.Buffer, s string) {
	b.WriteByte('"')
	for _, r := range s {
		escape := r < 0x20 || r == '"' || r == '\\' || rapid.IntRange(0, 3).Draw(t, "escape") == 0
		switch {
		case escape && r >= 0x10000:
			fmt.Fprintf(b, `\u%04x\u%04X`, 0xD800+(r-0x10000)>>10, 0xDC00+(r-0x10000)&0x3FF)
		case escape:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

func spellNumber(t *rapid.T, b *bytes.Buffer, n string) {
	digits, exponent, _ := strings.Cut(n, "e")
	exp, _ := strconv.Atoi(exponent)
	switch rapid.IntRange(0, 2).Draw(t, "spelling") {
	case 0:
		b.WriteString(n)
	case 1:
		zeros := rapid.IntRange(0, 5).Draw(t, "zeros")
		if digits == "0" {
			zeros = 0 // 00 is no JSON.
		}
		fmt.Fprintf(b, "%s%sE%+d", digits, strings.Repeat("0", zeros), exp-zeros)
	case 2:
		cut := len(digits) - rapid.IntRange(0, len(digits)).Draw(t, "point")
		if cut == 0 || digits[:cut] == "-" {
			cut = len(digits)
		}
		moved := len(digits) - cut
		fmt.Fprintf(b, "%s.%s0e%d", digits[:cut], digits[cut:], exp+moved)
	}
}

func TestIDM7SpellingsAreTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawObject(t, 3)
		var a, b bytes.Buffer
		spell(t, &a, v)
		spell(t, &b, v)
		if !samePayloads(a.String(), b.String()) {
			t.Fatalf("diverged:\n%s\n%s", a.String(), b.String())
		}
	})
}

// reference decodes a payload with encoding/json and makes its numbers exact. It is false for texts
// that encoding/json does not keep apart as the contract does.
func reference(payload []byte) (any, bool) {
	if bytes.Contains(bytes.ToLower(payload), []byte(`\ud`)) {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return nil, false
	}
	return exact(v)
}

func exact(v any) (any, bool) {
	ok := true
	switch v := v.(type) {
	case json.Number:
		if _, exponent, found := strings.Cut(strings.ToLower(string(v)), "e"); found {
			if n, err := strconv.Atoi(exponent); err != nil || n > 5000 || n < -5000 {
				return nil, false
			}
		}
		r, good := new(big.Rat).SetString(string(v))
		if !good {
			return nil, false
		}
		return r.RatString() + " as a number", true
	case []any:
		for i := range v {
			var good bool
			v[i], good = exact(v[i])
			ok = ok && good
		}
	case map[string]any:
		for name := range v {
			var good bool
			v[name], good = exact(v[name])
			ok = ok && good
		}
	}
	return v, ok
}

// checkAgainstReference compares SameContent with what encoding/json makes of both payloads.
func checkAgainstReference(t interface{ Fatalf(string, ...any) }, a, b []byte) {
	x, okX := reference(a)
	y, okY := reference(b)
	if !okX || !okY {
		return
	}
	same := samePayloads(string(a), string(b))
	if want := reflect.DeepEqual(x, y); same != want {
		t.Fatalf("%s and %s: same %v, want %v", a, b, same, want)
	}
	if !same && bytes.Equal(a, b) {
		t.Fatalf("%s differs from itself", a)
	}
}

func TestIDM7AgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few values, so that some pairs are equal.
		values := rapid.SampledFrom([]string{`1`, `1.0`, `10e-1`, `"1"`, `[1,2]`, `[1, 2.0]`, `{"a":1}`, `{"a":1,"a":2}`, `null`, `true`, `""`})
		names := rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0061"`, `"c"`})
		draw := func() []byte {
			var members []string
			for range rapid.IntRange(0, 3).Draw(t, "members") {
				members = append(members, names.Draw(t, "name")+":"+values.Draw(t, "value"))
			}
			return []byte("{" + strings.Join(members, ",") + "}")
		}
		checkAgainstReference(t, draw(), draw())
	})
}
