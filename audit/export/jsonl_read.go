package export

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// member is a member of a record's line.
type member struct {
	name   string
	begin  string // comma, name and colon
	quoted string // begin, with the quote before the value
	field  contract.Field
	form   memberForm
	// required members are in each line.
	required bool
}

type memberForm uint8

const (
	plainForm    memberForm = iota
	originalForm            // the object of the fields of Original
	encodedForm             // an object in base64, where a line cannot have it as it is
)

// writtenMembers are those of each field, in the order in which lines have them. members has the
// forms in base64 too. Readers take members in any order.
var writtenMembers, members = func() (written, all []member) {
	var encoded []member
	for _, f := range fields {
		m := member{name: f.Name, field: f, required: !f.Optional}
		if object, _, within := strings.Cut(f.Name, "."); within {
			if len(written) > 0 && written[len(written)-1].name == object {
				continue
			}
			m.name, m.form = object, originalForm
		}
		m.begin = `,"` + m.name + `":`
		m.quoted = m.begin + `"`
		if f.Kind == contract.KindObject {
			m.required = false
			e := member{name: m.name + "Json", field: f, form: encodedForm}
			e.begin = `,"` + e.name + `":`
			encoded = append(encoded, e)
		}
		written = append(written, m)
	}
	return written, append(slices.Clone(written), encoded...)
}()

// requiredMembers has a bit for each member that every line has.
var requiredMembers = func() (set uint64) {
	for k := range members {
		if members[k].required {
			set |= 1 << k
		}
	}
	return set
}()

// objectMembers has the bits of each object: that as it is, and that in base64.
var objectMembers = func() (sets map[string]uint64) {
	sets = map[string]uint64{}
	for k := range members {
		if m := &members[k]; m.field.Kind == contract.KindObject {
			sets[m.field.Name] |= 1 << k
		}
	}
	return sets
}()

var payloadMembers, extensionsMembers = objectMembers["payload"], objectMembers["extensions"]

// lineReader reads the members of one line. raw and text have the same bytes.
type lineReader struct {
	raw  []byte
	text string
	pos  int
}

// parseLine parses a line of appendLine, without its line feed, and returns its fault. The record
// shares its texts with text and its payload with raw.
//
// It only finds the payload's end: the payload's digest shows whether it is the stored one.
func parseLine(raw []byte, text string, r *Record) (fault string) {
	*r = Record{}
	e := (*contract.Recorded)(r)
	l := lineReader{raw: raw, text: text}
	if !utf8.ValidString(text) {
		return "is not valid UTF-8"
	}
	if !l.take('{') {
		return "is not a JSON object"
	}
	seen, next := uint64(0), 0
	for {
		k := l.name(next)
		if k < 0 {
			return l.stranger()
		}
		if seen&(1<<k) != 0 {
			return members[k].name + " is given twice"
		}
		seen |= 1 << k
		if want := l.value(&members[k], e); want != "" {
			return fmt.Sprintf("%s is not %s", members[k].name, want)
		}
		if next = k + 1; l.take(',') {
			continue
		}
		if !l.take('}') {
			return fmt.Sprintf("has neither a comma nor its end behind %s", members[k].name)
		}
		break
	}
	if l.pos < len(text) {
		return "goes on behind the record"
	}
	if missing := requiredMembers &^ seen; missing != 0 {
		return members[bits.TrailingZeros64(missing)].name + " is missing"
	}
	if bits.OnesCount64(seen&payloadMembers) != 1 {
		return "has not one of payload and payloadJson"
	}
	if seen&extensionsMembers == extensionsMembers {
		return "has both extensions and extensionsJson"
	}
	return ""
}

func (l *lineReader) take(c byte) bool {
	if l.pos < len(l.text) && l.text[l.pos] == c {
		l.pos++
		return true
	}
	return false
}

// name takes the name of a member and returns its number, usually next; -1: unknown.
func (l *lineReader) name(next int) int {
	rest := l.text[l.pos:]
	for range members {
		if next >= len(members) {
			next = 0
		}
		if quoted := members[next].begin[1:]; strings.HasPrefix(rest, quoted) {
			l.pos += len(quoted)
			return next
		}
		next++
	}
	return -1
}

// stranger returns the text in place of a member's name.
func (l *lineReader) stranger() string {
	if strings.HasPrefix(l.text, manifestMember) {
		return "has a manifest, behind which nothing may come"
	}
	at := l.pos
	if name, ok := l.string(); ok {
		return fmt.Sprintf("has a member %s, which records do not have", contract.Quote(name))
	}
	return fmt.Sprintf("has no member's name at byte %d", at)
}

// value takes the value of a member, or returns the expected form.
func (l *lineReader) value(m *member, r *contract.Recorded) (want string) {
	f := &m.field
	switch f.Kind {
	case contract.KindText:
		text, ok := l.string()
		if *f.Text(r) = text; !ok || text == "" && f.Optional {
			return wantText
		}
		return ""
	case contract.KindCount:
		return l.count(f.Count(r))
	case contract.KindNames:
		return l.inherited(f.Names(r))
	case contract.KindObject:
		if m.form == encodedForm {
			return l.encoded(f.Object(r))
		}
		return l.inLine(f.Object(r))
	case contract.KindTime:
		if m.form == originalForm {
			return l.original(&r.Original)
		}
	}
	text, ok := l.string()
	if want = parseField(f, text, r); !ok && want == "" {
		want = wantText
	}
	return want
}

// present is string for a member that is omitted if empty.
func (l *lineReader) present() (string, bool) {
	text, ok := l.string()
	return text, ok && text != ""
}

// inLine takes an object as it is.
func (l *lineReader) inLine(dst *[]byte) (want string) {
	if *dst = l.object(); *dst == nil {
		return wantObject
	}
	return ""
}

// encoded takes an object in base64.
func (l *lineReader) encoded(dst *[]byte) (want string) {
	return l.parsed(wantBase64, func(text string) bool {
		var err error
		*dst, err = base64.StdEncoding.Strict().DecodeString(text)
		return err == nil && len(*dst) > 0
	})
}

// parsed takes a string that parse must understand.
func (l *lineReader) parsed(want string, parse func(string) bool) string {
	if text, ok := l.string(); ok && parse(text) {
		return ""
	}
	return want
}

// string takes a JSON string.
func (l *lineReader) string() (string, bool) {
	if l.pos >= len(l.text) || l.text[l.pos] != '"' {
		return "", false
	}
	end := jsontext.SkipString(l.raw, l.pos)
	if end < 0 {
		return "", false
	}
	quoted := l.text[l.pos:end]
	l.pos = end
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], true
	}
	var text string
	return text, json.Unmarshal([]byte(quoted), &text) == nil
}

func (l *lineReader) original(o *contract.Original) (want string) {
	if !l.takeText(`{"persistedAt":`) || l.parsed(wantTime, func(text string) bool { return parseTime(&o.PersistedAt, text) && o.PersistedAt > 0 }) != "" {
		return wantOriginal
	}
	ok := true
	if l.takeText(`,"source":`) {
		o.Source, ok = l.present()
	}
	if !ok || !l.take('}') {
		return wantOriginal
	}
	return ""
}

func (l *lineReader) takeText(text string) bool {
	ok := strings.HasPrefix(l.text[l.pos:], text)
	if ok {
		l.pos += len(text)
	}
	return ok
}

// count takes a number that is written without quotes.
func (l *lineReader) count(dst *uint32) (want string) {
	end := l.pos
	for end < len(l.text) && '0' <= l.text[end] && l.text[end] <= '9' {
		end++
	}
	n, ok := parseNumber(l.text[l.pos:end], 32)
	*dst, l.pos = uint32(n), end
	if !ok {
		return wantNumber
	}
	return ""
}

func (l *lineReader) inherited(absent *contract.Absent) (want string) {
	if !l.take('[') {
		return wantNames
	}
	for first := true; !l.take(']'); first = false {
		if !first && !l.take(',') {
			return wantNames
		}
		if name, ok := l.string(); !ok || !contract.Inherit(absent, name) {
			return wantNames
		}
	}
	return ""
}

// object takes all bytes up to the matching bracket; nil: unterminated.
func (l *lineReader) object() []byte {
	if l.pos >= len(l.text) || l.text[l.pos] != '{' {
		return nil
	}
	from, end := l.pos, jsontext.SkipValue(l.raw, l.pos)
	if end < 0 {
		return nil
	}
	l.pos = end
	return l.raw[from:end:end]
}
