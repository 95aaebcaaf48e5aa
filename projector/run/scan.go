package run

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is a JSON value in a payload, not decoded; empty means absent.
//
// Payloads are read by this small scanner and not by encoding/json, because the digest depends on
// the reading. The member that counts (the last of equal names, in exact case) and the effect of a
// wrong type must be the same on every node, also while two releases of the server, built with two
// releases of Go, run side by side. The scanner also keeps valid fields beside an invalid one, and
// reads a StepCompleted with one artifact in a tenth of the time. The payload was checked to be
// valid JSON when it was appended. Of a broken payload, the part before the break counts.
type value []byte

// members walks through a JSON object; through nothing when v is none.
func (v value) members() cursor { return v.walk('{', '}') }

// elements walks through a JSON array; through nothing when v is none.
func (v value) elements() cursor { return v.walk('[', ']') }

func (v value) isObject() bool { return len(v) > 0 && v[0] == '{' }

func (v value) isString() bool { return len(v) > 1 && v[0] == '"' }

func (v value) isArray() bool { return len(v) > 0 && v[0] == '[' }

func (v value) walk(open, end byte) cursor {
	if len(v) == 0 || v[0] != open {
		return cursor{}
	}
	return cursor{in: v, at: 1, end: end}
}

// cursor is a place between two members or elements. The zero cursor is at the end.
type cursor struct {
	in    []byte
	at    int
	end   byte
	moved bool
}

// member returns the next member of an object.
func (c *cursor) member() (name []byte, v value, ok bool) {
	if !c.more() {
		return nil, nil, false
	}
	c.skipSpace()
	if c.at == len(c.in) || c.in[c.at] != '"' {
		return nil, nil, c.stop()
	}
	n, plain := stringLen(c.in[c.at:])
	if n == 0 {
		return nil, nil, c.stop()
	}
	key := value(c.in[c.at : c.at+n])
	c.at += n
	if c.skipSpace(); c.at == len(c.in) || c.in[c.at] != ':' {
		return nil, nil, c.stop()
	}
	c.at++
	if v = c.take(); len(v) == 0 {
		return nil, nil, c.stop()
	}
	name = key[1 : n-1]
	if !plain && bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(key.text())
	}
	return name, v, true
}

// element returns the next element of an array.
func (c *cursor) element() (v value, ok bool) {
	if !c.more() {
		return nil, false
	}
	if v = c.take(); len(v) == 0 {
		return nil, c.stop()
	}
	return v, true
}

// more steps over the comma, and reports whether the end is not reached.
func (c *cursor) more() bool {
	c.skipSpace()
	if c.at == len(c.in) || c.in[c.at] == c.end {
		return c.stop()
	}
	if c.moved {
		if c.in[c.at] != ',' {
			return c.stop()
		}
		c.at++
	}
	c.moved = true
	return true
}

func (c *cursor) stop() bool {
	*c = cursor{}
	return false
}

// take cuts the next value off, and returns nothing when there is no whole one.
func (c *cursor) take() value {
	c.skipSpace()
	from := c.at
	c.at += valueLen(c.in[from:])
	return c.in[from:c.at]
}

func (c *cursor) skipSpace() {
	for c.at < len(c.in) && isSpace(c.in[c.at]) {
		c.at++
	}
}

func isSpace(b byte) bool { return b <= ' ' && (b == ' ' || b == '\n' || b == '\r' || b == '\t') }

// valueLen returns the length of the value that b begins with, or 0.
func valueLen(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"':
		n, _ := stringLen(b)
		return n
	case '{', '[':
		return nestedLen(b)
	}
	for i, c := range b {
		if c == ',' || c == '}' || c == ']' || c == ':' || isSpace(c) {
			return i
		}
	}
	return len(b)
}

// Masks to find a byte among eight at a time (Mycroft's test for a zero byte; Warren, Hacker's
// Delight, 6-1). A borrow can make a byte after a found one look found, and never hides one.
const ones, highs = 0x0101010101010101, 0x8080808080808080

// stringLen returns the length of the string that b begins with, quotes included, or 0. It says
// plain only where it knows that there are no escapes. Most strings are short, so that to call
// bytes.IndexByte costs more than to look at them here.
func stringLen(b []byte) (n int, plain bool) {
	from := 1
	for ; from <= shortString && from+8 <= len(b); from += 8 {
		v := binary.LittleEndian.Uint64(b[from:])
		quote, slash := v^'"'*ones, v^'\\'*ones
		quote, slash = (quote-ones)&^quote&highs, (slash-ones)&^slash&highs
		if slash != 0 {
			break
		}
		if quote != 0 {
			return from + bits.TrailingZeros64(quote)/8 + 1, true
		}
	}
	for {
		n := bytes.IndexByte(b[from:], '"')
		if n < 0 {
			return 0, false
		}
		quote := from + n
		slashes := 0
		for quote-slashes > from && b[quote-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return quote + 1, false
		}
		from = quote + 1
	}
}

// shortString is up to where stringLen looks by itself.
const shortString = 16

// nestedLen returns the length of the object or array that b begins with, or 0. It counts depth
// without recursion, so that no payload can exhaust the stack.
func nestedLen(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n, _ := stringLen(b[i:])
			if n == 0 {
				return 0
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// text returns a string's value, and "" for anything else. Bytes and escapes that are no Unicode
// become U+FFFD, so that what is folded is always valid UTF-8.
func (v value) text() string {
	if !v.isString() {
		return ""
	}
	if inner, ok := v.literal(); ok {
		return string(inner)
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// textsOf returns the texts of values that live equally long, in one piece of memory: a third of
// the cost of folding a run is allocation.
func textsOf(values [4]value) (texts [4]string) {
	var inner [len(values)][]byte
	length := 0
	for i, v := range values {
		if v.isString() {
			literal := false
			if inner[i], literal = v.literal(); !literal {
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

// literal returns the inside of a string, and whether that is its value.
func (v value) literal() (inner []byte, ok bool) {
	inner = v[1 : len(v)-1]
	plain, ascii := plain(inner)
	return inner, plain && (ascii || utf8.Valid(inner))
}

// plain reports whether the inside of a string has no escapes and no control characters, and
// whether it is all ASCII.
func plain(b []byte) (yes, ascii bool) {
	var high uint64
	for len(b) >= 8 {
		v := binary.LittleEndian.Uint64(b)
		slash := v ^ '\\'*ones
		if ((v-' '*ones)&^v|(slash-ones)&^slash)&highs != 0 {
			return false, false
		}
		high |= v
		b = b[8:]
	}
	for _, c := range b {
		if c < ' ' || c == '\\' {
			return false, false
		}
		high |= uint64(c)
	}
	return true, high&highs == 0
}

// isNumber tells whether v is spelled with the characters of JSON numbers alone: strconv knows
// more.
func (v value) isNumber() bool {
	return len(v) > 0 && len(bytes.TrimLeft(v, "0123456789+-.eE")) == 0
}

func (v value) isTrue() bool { return string(v) == "true" }

// size returns a count of bytes, nil when v is none. It may be a number in any of the spellings
// that a double takes on its way through HTTP, such as 1e+06 (ENV-8), or a decimal string, as
// proto-JSON writes 64-bit integers.
func (v value) size() *int64 {
	digits := string(v)
	if v.isString() {
		digits = v.text()
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil && v.isNumber() {
		n, err = parseWhole(digits)
	}
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

// parseWhole reads a double that is a whole number in the range of int64.
func parseWhole(digits string) (int64, error) {
	float, err := strconv.ParseFloat(digits, 64)
	if err == nil && (float != math.Trunc(float) || math.Abs(float) >= 1<<63) {
		err = strconv.ErrRange
	}
	return int64(float), err
}
