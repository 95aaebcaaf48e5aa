package contract

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// ExplainEvent returns every fault of the text of an object that was refused as an event: those of
// ReadEvent, and in its payload and extensions text that is not UTF-8 and too deep nesting, with
// their JSON Pointers. The text may have these two faults and no others.
func ExplainEvent(object []byte) []Violation {
	r := eventReader{w: &runlogv1.EventWrite{}}
	r.read(object)
	x := textExplainer{bad: r.bad}
	c := jsontext.Members(object)
	for quoted, value, ok := c.Quoted(); ok; quoted, value, ok = c.Quoted() {
		switch f := fieldOf([]byte(jsontext.Unquote(quoted))); {
		case (f == payloadField || f == extensionsField) && value[0] == '{':
			x.object(value, f.String(), 1)
		case f == noField && r.line == Line11:
			x.member(quoted, value, payloadField.String(), 1)
		}
	}
	return x.bad
}

// textExplainer finds invalid UTF-8 and too deep nesting.
type textExplainer struct{ bad []Violation }

func (x *textExplainer) object(object []byte, at string, depth int) {
	c := jsontext.Members(object)
	for quoted, value, ok := c.Quoted(); ok; quoted, value, ok = c.Quoted() {
		x.member(quoted, value, at, depth)
	}
}

func (x *textExplainer) member(quoted, value []byte, at string, depth int) {
	to := inner(at, pointerEscapes.Replace(showName(jsontext.Unquote(quoted))))
	if !utf8.Valid(quoted) {
		x.bad = appendFault(x.bad, to, "has a name that "+NotUTF8)
	}
	x.value(value, to, depth)
}

func (x *textExplainer) value(value []byte, at string, depth int) {
	switch c := value[0]; {
	case (c == '{' || c == '[') && depth == MaxDepth:
		x.bad = appendFault(x.bad, at, "is nested deeper than %d levels", MaxDepth)
	case c == '{':
		x.object(value, at, depth+1)
	case c == '[':
		e := jsontext.Elements(value)
		element, ok := e.Element()
		for i := 0; ok; i++ {
			x.value(element, inner(at, strconv.Itoa(i)), depth+1)
			element, ok = e.Element()
		}
	case c == '"' && !utf8.Valid(value):
		x.bad = appendFault(x.bad, at, NotUTF8)
	}
}

// inner appends a step to the path of a fault. It leaves out steps that would make the path
// useless.
func inner(at, step string) string {
	const most = 256
	if len(at)+len(step) > most {
		return at
	}
	return at + "/" + step
}

var (
	dateTime   = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?$`)
	leapTime   = regexp.MustCompile(`^[^:]*:\d\d:60`)
	tooPrecise = regexp.MustCompile(`\.\d{10,}`)
	lostPlus   = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)? \d\d:\d\d$`)
)

// TimeHelp describes what is wrong with a text that should be a time.
func TimeHelp(text string) string {
	const form = "must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z"
	hint := ""
	switch {
	case lostPlus.MatchString(text): // an address spells a blank as +
		hint = ", with + or - before the offset; in an address, write + as %2B"
	case !dateTime.MatchString(text):
	case leapTime.MatchString(text):
		hint = ", without a leap second: send the second before or after it"
	case tooPrecise.MatchString(text):
		hint = ", with at most nine digits after the point"
	case strings.ContainsAny(text, "tz "):
		hint = ", with a capital T and Z"
	case strings.HasSuffix(text, "Z") || strings.ContainsAny(text[len("2026-02-11T10:30:00"):], "+-"):
		hint = ", on an existing day and at an existing time, from year 1 to 9999"
	default:
		hint = ", with Z or an offset from UTC"
	}
	return form + hint
}

// Spellings returns both ways to write a field: in lowerCamel and in snake case.
func Spellings(name string) string {
	var snake strings.Builder
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			snake.WriteByte('_')
			c += 'a' - 'A'
		}
		snake.WriteRune(c)
	}
	if snake.String() == name {
		return strconv.Quote(name)
	}
	return strconv.Quote(name) + " (or " + strconv.Quote(snake.String()) + ")"
}
