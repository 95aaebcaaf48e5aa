package schema

import (
	"bytes"

	"runlog/proto/contract/jsontext"
)

// lookCloser is what the methods below return instead of an offset for what they cannot decide.
const lookCloser = -1

// Accepts reports, in one pass over unchecked bytes, that they are one JSON object as
// jsontext.CheckObject defines it, with at most jsontext.MaxDepth levels, and that the rule finds
// no fault in it. It does not allocate.
//
// False only means that Faults must decide: a fault, a known member that appears twice, or a value
// that the rule checks and that is written in an unusual way.
func (r *Rule) Accepts(payload []byte) bool {
	end := r.accepts(payload, jsontext.SkipSpace(payload, 0), jsontext.MaxDepth)
	return end != lookCloser && jsontext.SkipSpace(payload, end) == len(payload)
}

// accepts checks the value that begins at b[i] and returns the offset after it. room is as in
// jsontext.ScanValue.
func (r *Rule) accepts(b []byte, i, room int) int {
	if i == len(b) {
		return lookCloser
	}
	switch c := b[i]; {
	case c == '{' && r.kinds&kindObject != 0 && room > 0:
		return r.acceptsObject(b, i, room-1)
	case c == '[' && r.kinds&kindArray != 0 && room > 0:
		return r.acceptsArray(b, i, room-1)
	case c == '"' && r.kinds&kindString != 0:
		end, fault := jsontext.ScanString(b, i)
		if fault != 0 || !r.acceptsText(b[i+1:end-1]) {
			return lookCloser
		}
		return end
	case '0' <= c && c <= '9' && r.kinds&kindInteger != 0:
		return acceptsNumber(b, i)
	case (c == 't' || c == 'f') && r.kinds&kindBoolean != 0, c == 'n' && r.kinds&kindNull != 0:
		if end, fault := jsontext.ScanScalar(b, i); fault == 0 {
			return end
		}
	}
	return lookCloser
}

func (r *Rule) acceptsObject(b []byte, i, room int) int {
	var seen uint64
	i = jsontext.SkipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return r.acceptsEnd(seen, i+1)
	}
	for {
		if i == len(b) || b[i] != '"' {
			return lookCloser
		}
		end, fault := jsontext.ScanString(b, i)
		if fault != 0 {
			return lookCloser
		}
		name := b[i+1 : end-1]
		i = jsontext.SkipSpace(b, end)
		if i == len(b) || b[i] != ':' {
			return lookCloser
		}
		i = r.acceptsMember(name, b, jsontext.SkipSpace(b, i+1), room, &seen)
		if i == lookCloser {
			return lookCloser
		}
		i = jsontext.SkipSpace(b, i)
		switch {
		case i == len(b):
			return lookCloser
		case b[i] == '}':
			return r.acceptsEnd(seen, i+1)
		case b[i] != ',':
			return lookCloser
		}
		i = jsontext.SkipSpace(b, i+1)
	}
}

// acceptsMember checks the value of a member. A known member that appears again is left to Faults:
// of duplicates the last counts, and this pass has already judged the first.
func (r *Rule) acceptsMember(name, b []byte, i, room int, seen *uint64) int {
	k := r.find(name)
	if k < 0 {
		if bytes.IndexByte(name, '\\') >= 0 {
			return lookCloser // It may be a known name.
		}
		return acceptAny(b, i, room)
	}
	if *seen>>k&1 == 1 {
		return lookCloser
	}
	*seen |= 1 << k
	if rule := r.members[k].rule; rule != nil {
		return rule.accepts(b, i, room)
	}
	return acceptAny(b, i, room)
}

func acceptAny(b []byte, i, room int) int {
	end, fault := jsontext.ScanValue(b, i, room)
	if fault != 0 {
		return lookCloser
	}
	return end
}

// acceptsEnd returns i when an object that ends there has the members that it must have.
func (r *Rule) acceptsEnd(seen uint64, i int) int {
	if seen&r.required != r.required || !r.hasOneOf(seen) {
		return lookCloser
	}
	return i
}

func (r *Rule) hasOneOf(seen uint64) bool {
	for _, set := range r.either {
		if seen&set == set {
			return true
		}
	}
	return len(r.either) == 0
}

func (r *Rule) acceptsArray(b []byte, i, room int) int {
	i = jsontext.SkipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if r.items == nil {
			i = acceptAny(b, i, room)
		} else {
			i = r.items.accepts(b, i, room)
		}
		if i == lookCloser {
			return lookCloser
		}
		i = jsontext.SkipSpace(b, i)
		switch {
		case i == len(b):
			return lookCloser
		case b[i] == ']':
			return i + 1
		case b[i] != ',':
			return lookCloser
		}
		i = jsontext.SkipSpace(b, i+1)
	}
}

// acceptsText reports that the rule finds no fault in a string. A string with an escape is left to
// Faults where the rule looks inside.
func (r *Rule) acceptsText(raw []byte) bool {
	switch {
	case r.words != nil:
		// No word has a character that JSON escapes, so none equals a text with an escape.
		return r.isWord(raw)
	case r.form != nil:
		return r.form.shown(raw)
	}
	// An escape may be that of a lone surrogate.
	return (!r.nonEmpty || len(raw) > 0) && !bytes.Contains(raw, []byte(`\u`))
}

func (r *Rule) isWord(text []byte) bool {
	for _, w := range r.words {
		if string(text) == w {
			return true
		}
	}
	return false
}

// acceptsNumber accepts the numbers that are written with digits alone and surely fit 64 bits.
func acceptsNumber(b []byte, i int) int {
	const surely = len("999999999999999999")
	end, fault := jsontext.ScanNumber(b, i)
	if fault != 0 || jsontext.SkipDigits(b, i) != end || end-i > surely {
		return lookCloser
	}
	return end
}
