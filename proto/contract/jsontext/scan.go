package jsontext

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is how many arrays and objects of a payload may lie within each other, itself included.
// The bound keeps every walk over a payload from recursing deep.
const MaxDepth = 64

// maxRoom is the most levels that ScanValue can keep track of: one bit each.
const maxRoom = 128

// Fault is why a text is not JSON. The zero value means that there is no fault.
type Fault uint8

// The faults of a text.
const (
	FaultEnd Fault = iota + 1
	FaultValue
	FaultName
	FaultColon
	FaultSeparator
	FaultNumber
	FaultEscape
	FaultControl
	FaultUTF8
	FaultDepth
	FaultTrailing
	FaultObject
)

var faultTexts = [...]string{
	FaultEnd:       "the text ends in the middle of a value",
	FaultValue:     "a value was expected",
	FaultName:      "a member name in double quotes was expected",
	FaultColon:     "a colon was expected",
	FaultSeparator: "a comma or a closing bracket was expected",
	FaultNumber:    "a malformed number",
	FaultEscape:    "an unknown escape in a string",
	FaultControl:   "an unescaped control character in a string",
	FaultUTF8:      "invalid UTF-8",
	FaultDepth:     "nested deeper than 64 levels",
	FaultTrailing:  "more text after the value",
	FaultObject:    "not a JSON object",
}

// String describes the fault for an error message. It is empty for the zero value.
func (f Fault) String() string { return faultTexts[f] }

// plain marks the bytes that a string may hold and that need no closer look.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// CheckObject reports whether b is one JSON object in valid UTF-8, with at most white space around
// it and at most room levels of nesting. It returns the first fault and its offset. room is at most
// MaxDepth+1: an event with its payload inside.
func CheckObject(b []byte, room int) (pos int, fault Fault) {
	start := SkipSpace(b, 0)
	if start == len(b) || b[start] != '{' {
		return start, FaultObject
	}
	end, fault := ScanValue(b, start, room)
	if fault != 0 {
		return end, fault
	}
	if end = SkipSpace(b, end); end < len(b) {
		return end, FaultTrailing
	}
	return end, 0
}

// ScanValue checks the value that begins at b[i], after white space, and returns the offset after
// it, or the offset of its fault. room is how many arrays and objects may lie within each other
// there, at most MaxDepth+1.
func ScanValue(b []byte, i, room int) (int, Fault) {
	var objects [maxRoom / 64]uint64 // Bit d is set while the container at depth d is an object.
	depth := 0
	for {
		i = SkipSpace(b, i)
		if i == len(b) {
			return i, FaultEnd
		}
		var fault Fault
		switch b[i] {
		case '{', '[':
			if depth == room {
				return i, FaultDepth
			}
			object := b[i] == '{'
			word, bit := &objects[depth/64%len(objects)], uint64(1)<<(depth%64)
			*word &^= bit
			if object {
				*word |= bit
			}
			depth++
			i = SkipSpace(b, i+1)
			if i < len(b) && (object && b[i] == '}' || !object && b[i] == ']') {
				i++
				depth--
				break
			}
			if object {
				if i, fault = scanName(b, i); fault != 0 {
					return i, fault
				}
			}
			continue
		default:
			if i, fault = ScanScalar(b, i); fault != 0 {
				return i, fault
			}
		}
		if i, depth, fault = scanAfter(b, i, depth, &objects); fault != 0 || depth == 0 {
			return i, fault
		}
	}
}

// scanAfter checks the text after a value: the brackets that close there and, while a container is
// open, the comma and the member name up to the place where the next value begins.
func scanAfter(b []byte, i, depth int, objects *[maxRoom / 64]uint64) (int, int, Fault) {
	for depth > 0 {
		i = SkipSpace(b, i)
		if i == len(b) {
			return i, depth, FaultEnd
		}
		top := uint(depth - 1)
		object := objects[top/64%uint(len(objects))]>>(top%64)&1 == 1
		switch c := b[i]; {
		case c == ',' && object:
			i, fault := scanName(b, SkipSpace(b, i+1))
			return i, depth, fault
		case c == ',':
			return i + 1, depth, 0
		case c == '}' && object, c == ']' && !object:
			i++
			depth--
		default:
			return i, depth, FaultSeparator
		}
	}
	return i, 0, 0
}

// scanName checks a member name that begins at b[i] and the colon after it.
func scanName(b []byte, i int) (int, Fault) {
	if i == len(b) {
		return i, FaultEnd
	}
	if b[i] != '"' {
		return i, FaultName
	}
	i, fault := ScanString(b, i)
	if fault != 0 {
		return i, fault
	}
	i = SkipSpace(b, i)
	if i == len(b) {
		return i, FaultEnd
	}
	if b[i] != ':' {
		return i, FaultColon
	}
	return i + 1, 0
}

// ScanScalar checks the string, number, true, false or null that begins at b[i] and returns the
// offset after it, or the offset of its fault.
func ScanScalar(b []byte, i int) (int, Fault) {
	switch c := b[i]; {
	case c == '"':
		return ScanString(b, i)
	case c == '-' || '0' <= c && c <= '9':
		return ScanNumber(b, i)
	case c == 't':
		return scanLiteral(b, i, "true")
	case c == 'f':
		return scanLiteral(b, i, "false")
	case c == 'n':
		return scanLiteral(b, i, "null")
	}
	return i, FaultValue
}

func scanLiteral(b []byte, i int, literal string) (int, Fault) {
	if len(b)-i < len(literal) || string(b[i:i+len(literal)]) != literal {
		return i, FaultValue
	}
	return i + len(literal), 0
}

// ScanString checks the string whose opening quote is b[i]. It returns the offset after the closing
// quote, or the offset of the fault.
func ScanString(b []byte, i int) (int, Fault) {
	i++
	for {
		for i+8 <= len(b) { // eight bytes at a time, as in skipString
			v := binary.LittleEndian.Uint64(b[i:])
			quote, slash := v^'"'*ones, v^'\\'*ones
			found := ((quote-ones)&^quote | (slash-ones)&^slash | (v-' '*ones)&^v | v) & highs
			if found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
			i += 8
		}
		for i < len(b) && plain[b[i]] {
			i++
		}
		if i == len(b) {
			return i, FaultEnd
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, 0
		case c == '\\':
			n := escapeLen(b[i:])
			if n == 0 {
				return i, FaultEscape
			}
			i += n
		case c < 0x20:
			return i, FaultControl
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return i, FaultUTF8
			}
			i += n
		}
	}
}

// escapeLen returns the length of the escape that b begins with, and 0 for no legal escape.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if hexDigit(c) < 0 {
				return 0
			}
		}
		return 6
	}
	return 0
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// ScanNumber checks the number that begins at b[i], a digit or a minus sign, and returns the offset
// after it, or the offset of its fault.
func ScanNumber(b []byte, i int) (int, Fault) {
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++ // A digit after a leading zero is found as a missing comma.
	default:
		end := SkipDigits(b, i)
		if end == i {
			return i, FaultNumber
		}
		i = end
	}
	if i < len(b) && b[i] == '.' {
		end := SkipDigits(b, i+1)
		if end == i+1 {
			return end, FaultNumber
		}
		i = end
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		end := SkipDigits(b, i)
		if end == i {
			return i, FaultNumber
		}
		i = end
	}
	return i, 0
}

// SkipDigits returns the offset after the decimal digits that begin at b[i].
func SkipDigits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// SkipSpace returns the offset after the white space that begins at b[i].
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}
