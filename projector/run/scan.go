package run

import (
	"iter"
	"strings"
	"time"

	"runlog/proto/contract/jsontext"
)

// value is a JSON value in a payload, not decoded; empty means absent.
//
// Payloads are read with jsontext and not with encoding/json because the reading is part of the
// digest: which member counts (the last of equal names, in exact case) and what a wrong type does
// must be the same on every node, also while two releases of the server, built with two releases of
// Go, run side by side. It also keeps the fields that are right when another one is wrong, and
// reads a StepCompleted with one artifact in a tenth of the time. That the payload is valid JSON
// was checked when it entered; of one that is broken, what stands before the break counts.
type value []byte

// members yields the members of a JSON object; none when v is none.
func (v value) members() iter.Seq2[[]byte, value] {
	return func(yield func([]byte, value) bool) {
		for c := jsontext.Members(v); ; {
			if name, member, ok := c.Member(); !ok || !yield(name, member) {
				return
			}
		}
	}
}

// elements yields the elements of a JSON array; none when v is none.
func (v value) elements() iter.Seq[value] {
	return func(yield func(value) bool) {
		for c := jsontext.Elements(v); ; {
			if element, ok := c.Element(); !ok || !yield(element) {
				return
			}
		}
	}
}

func (v value) isObject() bool { return len(v) > 0 && v[0] == '{' }

func (v value) isString() bool { return len(v) > 1 && v[0] == '"' }

func (v value) isArray() bool { return len(v) > 0 && v[0] == '[' }

// text returns a string's value, and "" for anything else. Bytes and escapes that are no Unicode
// become U+FFFD, so that what is folded is always valid UTF-8.
func (v value) text() string { return jsontext.Text(v) }

// textsOf returns the texts of values that live equally long, in one piece of memory: a third of
// the cost of folding a run is allocation.
func textsOf(values [4]value) (texts [4]string) {
	var inner [len(values)][]byte
	length := 0
	for i, v := range values {
		if v.isString() {
			literal := false
			if inner[i], literal = jsontext.Plain(v); !literal {
				return [...]string{values[0].text(), values[1].text(), values[2].text(), values[3].text()}
			}
			length += len(inner[i])
		}
	}
	var all strings.Builder
	all.Grow(length)
	for _, b := range inner {
		all.Write(b)
	}
	rest := all.String()
	for i, b := range inner {
		texts[i], rest = rest[:len(b)], rest[len(b):]
	}
	return texts
}

func (v value) isTrue() bool { return string(v) == "true" }

func (v value) isFalse() bool { return string(v) == "false" }

// size returns a count of bytes, nil when v is none.
func (v value) size() *int64 {
	n, _, ok := jsontext.Size(v)
	if !ok {
		return nil
	}
	return &n
}

// time returns a time, false when v is none that a snapshot can show.
func (v value) time() (t time.Time, ok bool) {
	if !v.isString() {
		return t, false
	}
	t, _, ok = jsontext.Time(v[1 : len(v)-1])
	return t, ok
}

func (v value) timeOr(fallback time.Time) time.Time {
	if t, ok := v.time(); ok {
		return t
	}
	return fallback
}
