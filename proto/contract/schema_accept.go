package contract

import "bytes"

// lookCloser is what the methods below return instead of a position for what they cannot decide.
const lookCloser = -1

// acceptsPayload reports, in one pass over bytes of which nothing is known yet, that they are one
// JSON object, as checkObject says, and that the rule has nothing against it. False means no more
// than that it is worth a closer look: something is wrong, or a known member is given twice, or
// something that the rule speaks about is written in an unusual way. It does not allocate.
func (r *rule) acceptsPayload(b []byte) bool {
	end := r.accepts(b, skipSpace(b, 0), MaxDepth)
	return end != lookCloser && skipSpace(b, end) == len(b)
}

// accepts walks over the value that begins at b[i] and returns the position after it. room is as in
// scanWithin.
func (r *rule) accepts(b []byte, i, room int) int {
	if i == len(b) {
		return lookCloser
	}
	switch c := b[i]; {
	case c == '{' && r.kinds&kindObject != 0 && room > 0:
		return r.acceptsObject(b, i, room-1)
	case c == '[' && r.kinds&kindArray != 0 && room > 0:
		return r.acceptsArray(b, i, room-1)
	case c == '"' && r.kinds&kindString != 0:
		end, fault := scanString(b, i)
		if fault != "" || !r.acceptsText(b[i+1:end-1]) {
			return lookCloser
		}
		return end
	case '0' <= c && c <= '9' && r.kinds&kindInteger != 0:
		return r.acceptsNumber(b, i)
	case (c == 't' || c == 'f') && r.kinds&kindBoolean != 0, c == 'n' && r.kinds&kindNull != 0:
		if end, fault := scanScalar(b, i); fault == "" {
			return end
		}
	}
	return lookCloser
}

func (r *rule) acceptsObject(b []byte, i, room int) int {
	var seen uint64
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return r.acceptsEnd(seen, i+1)
	}
	for {
		if i == len(b) || b[i] != '"' {
			return lookCloser
		}
		end, fault := scanString(b, i)
		if fault != "" {
			return lookCloser
		}
		name := b[i+1 : end-1]
		i = skipSpace(b, end)
		if i == len(b) || b[i] != ':' {
			return lookCloser
		}
		i = r.acceptsMember(name, b, skipSpace(b, i+1), room, &seen)
		if i == lookCloser {
			return lookCloser
		}
		i = skipSpace(b, i)
		switch {
		case i == len(b):
			return lookCloser
		case b[i] == '}':
			return r.acceptsEnd(seen, i+1)
		case b[i] != ',':
			return lookCloser
		}
		i = skipSpace(b, i+1)
	}
}

// acceptsMember walks over the value of a member. A known member that has been seen is left to a
// closer look: of duplicates the last counts, and this pass may have refused the first for nothing.
func (r *rule) acceptsMember(name, b []byte, i, room int, seen *uint64) int {
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
	end, fault := scanWithin(b, i, room)
	if fault != "" {
		return lookCloser
	}
	return end
}

// acceptsEnd returns i when an object that ends there has the members that it must have.
func (r *rule) acceptsEnd(seen uint64, i int) int {
	if seen&r.required != r.required || !r.hasOneOf(seen) {
		return lookCloser
	}
	return i
}

func (r *rule) hasOneOf(seen uint64) bool {
	for _, set := range r.either {
		if seen&set == set {
			return true
		}
	}
	return len(r.either) == 0
}

func (r *rule) acceptsArray(b []byte, i, room int) int {
	i = skipSpace(b, i+1)
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
		i = skipSpace(b, i)
		switch {
		case i == len(b):
			return lookCloser
		case b[i] == ']':
			return i + 1
		case b[i] != ',':
			return lookCloser
		}
		i = skipSpace(b, i+1)
	}
}

// acceptsText reports that a string has nothing against the rule. Where the rule looks inside, a
// string with an escape is left to a closer look.
func (r *rule) acceptsText(raw []byte) bool {
	switch {
	case r.words != nil:
		// No word has a character that must be escaped, and so none equals a text with an escape.
		return r.isWord(raw)
	case r.form != nil:
		return r.form.matches(raw)
	}
	return !r.nonEmpty || len(raw) > 0
}

func (r *rule) isWord(text []byte) bool {
	for _, w := range r.words {
		if string(text) == w {
			return true
		}
	}
	return false
}

// acceptsNumber takes the numbers that are written with digits alone.
func (r *rule) acceptsNumber(b []byte, i int) int {
	end, fault := scanNumber(b, i)
	if fault != "" || skipDigits(b, i) != end {
		return lookCloser
	}
	return end
}
