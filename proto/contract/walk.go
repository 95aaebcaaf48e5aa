package contract

import (
	"bytes"
	"unicode/utf8"
)

// members walks over the members of one JSON object in their order, duplicates included, and checks
// the text as it goes. When next returns false the object has ended at pos, or is faulty there.
type members struct {
	text   []byte
	pos    int
	inside bool
	fault  string
}

// next returns the raw bytes of a name, with its quotes, and of its value, without white space
// around.
func (m *members) next() (name, value []byte, ok bool) {
	m.pos = skipSpace(m.text, m.pos)
	if !m.enter() {
		return nil, nil, false
	}
	start := m.pos
	if m.pos, m.fault = scanName(m.text, start); m.fault != "" {
		return nil, nil, false
	}
	name = bytes.TrimRight(m.text[start:m.pos-1], " \t\r\n")
	start = skipSpace(m.text, m.pos)
	if m.pos, m.fault = scanValue(m.text, start); m.fault != "" {
		return nil, nil, false
	}
	return name, m.text[start:m.pos], true
}

// enter goes on from pos to the next member's name. It is false at the end of the object.
func (m *members) enter() bool {
	if m.pos == len(m.text) {
		m.fault = badEnd
		return false
	}
	c := m.text[m.pos]
	switch {
	case !m.inside && c != '{':
		m.fault = badObject
		return false
	case m.inside && c == '}':
		m.pos++
		return false
	case m.inside && c != ',':
		m.fault = badSeparator
		return false
	}
	m.pos = skipSpace(m.text, m.pos+1)
	if !m.inside && m.pos < len(m.text) && m.text[m.pos] == '}' {
		m.pos++
		return false
	}
	m.inside = true
	return true
}

// lookup returns the raw value of a member of a JSON value that has been checked; a value that is
// no object has none. Of duplicates the last wins, as it does in IDM-7.
func lookup(object []byte, name string) (value []byte, ok bool) {
	m := members{text: object}
	for {
		n, v, more := m.next()
		if !more {
			return value, ok
		}
		if unquote(n) == name {
			value, ok = v, true
		}
	}
}

// unquote returns the text of a checked JSON string. An escaped surrogate without its other half
// has no UTF-8; it comes out as three bytes that utf8.ValidString refuses.
func unquote(raw []byte) string {
	if body := raw[1 : len(raw)-1]; bytes.IndexByte(body, '\\') < 0 {
		return string(body)
	}
	return string(appendUnquoted(nil, raw))
}

// appendUnquoted appends the text of a checked JSON string. Lone surrogates become the three bytes
// that UTF-8 would have for them, so that strings that differ only there stay different.
func appendUnquoted(dst, raw []byte) []byte {
	raw = raw[1 : len(raw)-1]
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		if raw[i+1] != 'u' {
			dst = append(dst, unescaped(raw[i+1]))
			raw = raw[i+2:]
			continue
		}
		r := hexRune(raw[i+2:])
		raw = raw[i+6:]
		if isHighSurrogate(r) && len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
			if low := hexRune(raw[2:]); isLowSurrogate(low) {
				r = 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
				raw = raw[6:]
			}
		}
		if isHighSurrogate(r) || isLowSurrogate(r) {
			dst = append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
			continue
		}
		dst = utf8.AppendRune(dst, r)
	}
}

func isHighSurrogate(r rune) bool { return 0xD800 <= r && r <= 0xDBFF }

func isLowSurrogate(r rune) bool { return 0xDC00 <= r && r <= 0xDFFF }

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

func hexRune(b []byte) (r rune) {
	for _, c := range b[:4] {
		r = r<<4 | rune(hexDigit(c))
	}
	return r
}
