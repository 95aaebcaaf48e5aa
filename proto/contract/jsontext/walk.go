package jsontext

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Cursor walks over the members of an object, or over the elements of an array, in order, with
// duplicates. The zero Cursor is at the end. A Cursor over text that is not JSON yields what stands
// before the first fault that it meets.
type Cursor struct {
	text  []byte
	at    int
	end   byte
	moved bool
}

// Members returns a Cursor over a JSON object. It is at the end when the value is no object.
func Members(object []byte) Cursor { return walk(object, '{', '}') }

// Elements returns a Cursor over a JSON array. It is at the end when the value is no array.
func Elements(array []byte) Cursor { return walk(array, '[', ']') }

func walk(value []byte, open, end byte) Cursor {
	i := SkipSpace(value, 0)
	if i == len(value) || value[i] != open {
		return Cursor{}
	}
	return Cursor{text: value, at: i + 1, end: end}
}

// Member returns the next member of an object: the text of its name, and its value as it is
// written. Both are parts of the object, except that a name with escapes is a new slice, as Unquote
// gives it.
func (c *Cursor) Member() (name, value []byte, ok bool) {
	quoted, value, plain, ok := c.member()
	switch {
	case !ok:
		return nil, nil, false
	case plain || bytes.IndexByte(quoted, '\\') < 0:
		return quoted[1 : len(quoted)-1], value, true
	default:
		return AppendUnquoted(nil, quoted), value, true
	}
}

// Quoted is Member with the name as it is written, with its quotes.
func (c *Cursor) Quoted() (name, value []byte, ok bool) {
	name, value, _, ok = c.member()
	return name, value, ok
}

func (c *Cursor) member() (quoted, value []byte, plain, ok bool) {
	if !c.more() {
		return nil, nil, false, false
	}
	from := SkipSpace(c.text, c.at)
	if from == len(c.text) || c.text[from] != '"' {
		return nil, nil, false, c.stop()
	}
	end, plain := skipString(c.text, from)
	if end < 0 {
		return nil, nil, false, c.stop()
	}
	quoted = c.text[from:end]
	if end = SkipSpace(c.text, end); end == len(c.text) || c.text[end] != ':' {
		return nil, nil, false, c.stop()
	}
	c.at = end + 1
	value, ok = c.take()
	return quoted, value, plain, ok
}

// Element returns the next element of an array as it is written.
func (c *Cursor) Element() (value []byte, ok bool) {
	if !c.more() {
		return nil, false
	}
	return c.take()
}

// Pos returns the offset after the value that was returned last. It is 0 at the end.
func (c *Cursor) Pos() int { return c.at }

// more steps over the comma. It is false at the end.
func (c *Cursor) more() bool {
	c.at = SkipSpace(c.text, c.at)
	if c.at == len(c.text) || c.text[c.at] == c.end {
		return c.stop()
	}
	if c.moved {
		if c.text[c.at] != ',' {
			return c.stop()
		}
		c.at++
	}
	c.moved = true
	return true
}

// take cuts the next value off. It stops the Cursor when there is no whole value.
func (c *Cursor) take() (value []byte, ok bool) {
	from := SkipSpace(c.text, c.at)
	end := SkipValue(c.text, from)
	if end < 0 {
		return nil, c.stop()
	}
	c.at = end
	return c.text[from:end], true
}

func (c *Cursor) stop() bool {
	*c = Cursor{}
	return false
}

// Lookup returns the value of a member of an object, and of several with that name the last. A
// value that is no object has no members.
func Lookup(object []byte, name string) (value []byte, ok bool) {
	c := Members(object)
	for n, v, more := c.Member(); more; n, v, more = c.Member() {
		if string(n) == name {
			value, ok = v, true
		}
	}
	return value, ok
}

// SkipValue returns the offset after the value that begins at b[i], and -1 when there is no whole
// value. A number or a literal ends before the next delimiter, whatever it says.
func SkipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		end, _ := skipString(b, i)
		return end
	case '{', '[':
		return skipNested(b, i)
	}
	for end := i; ; end++ {
		if end < len(b) && !endsScalar(b[end]) {
			continue
		}
		if end == i {
			return -1
		}
		return end
	}
}

func endsScalar(c byte) bool {
	return c == ',' || c == '}' || c == ']' || c == ':' || c <= ' ' && (c == ' ' || c == '\n' || c == '\r' || c == '\t')
}

// skipNested is SkipValue for an object or an array. It counts levels without recursion, so that no
// text can exhaust the stack.
func skipNested(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			end, _ := skipString(b, i)
			if end < 0 {
				return -1
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// SkipString returns the offset after the string whose opening quote is b[i], and -1 when the
// string has no end.
func SkipString(b []byte, i int) int {
	end, _ := skipString(b, i)
	return end
}

// Constants of Mycroft's test for a zero byte among eight (Warren, Hacker's Delight, 6-1). A borrow
// can make a byte after a found one look found, and never hides one.
const ones, highs = 0x0101010101010101, 0x8080808080808080

// shortString is the offset within a string up to which skipString looks eight bytes at a time.
const shortString = 16

// skipString is SkipString. plain means that the string is known to have no escapes; false says
// nothing. Most strings are short: there, a call of bytes.IndexByte costs more than this loop.
func skipString(b []byte, i int) (end int, plain bool) {
	from := i + 1
	for ; from <= i+shortString && from+8 <= len(b); from += 8 {
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
			return -1, false
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
