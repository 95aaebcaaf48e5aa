package jsontext

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"unicode/utf8"
)

// Unquote returns the text of a checked JSON string without loss: strings with different text stay
// different. A lone surrogate, which has no UTF-8, becomes the three bytes that it would have, and
// utf8.ValidString refuses the result.
func Unquote(quoted []byte) string {
	if inner := quoted[1 : len(quoted)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	return string(AppendUnquoted(nil, quoted))
}

// AppendUnquoted appends what Unquote returns. An escape that JSON does not have stays as it is
// written.
func AppendUnquoted(dst, quoted []byte) []byte {
	rest := quoted[1 : len(quoted)-1]
	for {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			return append(dst, rest...)
		}
		dst = append(dst, rest[:i]...)
		rest = rest[i:]
		switch escapeLen(rest) {
		case 0:
			dst = append(dst, '\\')
			rest = rest[1:]
		case 2:
			dst = append(dst, unescaped(rest[1]))
			rest = rest[2:]
		default:
			var r rune
			r, rest = cutRune(rest)
			dst = appendRune(dst, r)
		}
	}
}

// cutRune reads the character that a legal \u escape stands for, or a pair of them.
func cutRune(b []byte) (r rune, rest []byte) {
	r, rest = hexRune(b[2:]), b[6:]
	if isHighSurrogate(r) && len(rest) > 0 && rest[0] == '\\' && escapeLen(rest) == 6 {
		if low := hexRune(rest[2:]); isLowSurrogate(low) {
			return 0x10000 + (r-0xD800)<<10 + (low - 0xDC00), rest[6:]
		}
	}
	return r, rest
}

func appendRune(dst []byte, r rune) []byte {
	if isHighSurrogate(r) || isLowSurrogate(r) {
		return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(dst, r)
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

// Text returns the text of a string, as SkipString finds it, the way encoding/json decodes it:
// bytes and escapes that are no Unicode become U+FFFD, so that the text is always valid UTF-8. It
// is empty for any other value, and for a string that is not JSON.
func Text(quoted []byte) string {
	if len(quoted) < 2 || quoted[0] != '"' {
		return ""
	}
	if inner, ok := Plain(quoted); ok {
		return string(inner)
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return ""
	}
	return s
}

// Plain returns the inside of a string, as SkipString finds it, and whether it is also the string's
// text: no escape, no control character, valid UTF-8. It is false for any other value.
func Plain(quoted []byte) (inner []byte, ok bool) {
	if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return nil, false
	}
	inner = quoted[1 : len(quoted)-1]
	clean, ascii := isClean(inner)
	return inner, clean && (ascii || utf8.Valid(inner))
}

// isClean reports whether b has neither backslashes nor control characters, and whether it is all
// ASCII.
func isClean(b []byte) (clean, ascii bool) {
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

// AppendQuoted appends s as a JSON string in the spelling of RFC 8785, section 3.2.2.2, which
// proto-JSON has too: the two-character escapes where JSON has them, \u00xx for the other control
// characters, and all else as it is. s must be valid UTF-8.
func AppendQuoted(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if plain[c] || c >= utf8.RuneSelf {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}

// SplitNumber returns the parts of a checked number: the digits before the point, those after it,
// and the exponent with its sign. A part that the number does not have is empty.
func SplitNumber(number []byte) (negative bool, whole, fraction, exponent []byte) {
	if number[0] == '-' {
		negative, number = true, number[1:]
	}
	if e := bytes.IndexAny(number, "eE"); e >= 0 {
		number, exponent = number[:e], number[e+1:]
	}
	whole, fraction, _ = bytes.Cut(number, []byte("."))
	return negative, whole, fraction, exponent
}
