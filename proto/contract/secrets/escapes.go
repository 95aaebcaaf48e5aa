package secrets

import "bytes"

// escape is how the escape of a character of Latin-1 begins in JSON, and escapeBytes its length.
const (
	escape      = `\u00`
	escapeBytes = len(escape) + 2
)

// FindJSON is Find for JSON text, also where an encoder has escaped ASCII that needs no escape. The
// offset is that in the text as it is written.
func FindJSON(text []byte) (Kind, int) {
	if kind, at := Find(text); kind != "" {
		return kind, at
	}
	if !hasEscape(text) {
		return "", 0
	}
	plain, _ := unescape(make([]byte, 0, len(text)), text, len(text))
	kind, at := Find(plain)
	if kind == "" {
		return "", 0
	}
	_, from := unescape(plain[:0], text, at)
	return kind, from
}

// hasEscape reports whether a text has an escaped character of ASCII. Escapes of other characters,
// as for a letter with an accent, hide nothing.
func hasEscape(text []byte) bool {
	for {
		at := bytes.Index(text, []byte(escape))
		if at < 0 {
			return false
		}
		if high, _, ok := digits(text[at:]); ok && high < 8 {
			return true
		}
		text = text[at+len(escape):]
	}
}

// unescape appends text to plain, with the escaped characters of ASCII as they are, until plain has
// limit bytes. It returns how far it has come in text.
func unescape(plain, text []byte, limit int) ([]byte, int) {
	at := 0
	for at < len(text) && len(plain) < limit {
		next := bytes.IndexByte(text[at:], '\\')
		if next < 0 {
			next = len(text) - at
		}
		if next = min(next, limit-len(plain)); next > 0 {
			plain, at = append(plain, text[at:at+next]...), at+next
			continue
		}
		c, escaped := text[at], 1
		if high, low, ok := digits(text[at:]); ok && high < 8 {
			c, escaped = high<<4|low, escapeBytes
		}
		plain, at = append(plain, c), at+escaped
	}
	return plain, at
}

// digits returns the last two digits of an escape at the beginning of a text.
func digits(text []byte) (high, low byte, ok bool) {
	if len(text) < escapeBytes || string(text[:len(escape)]) != escape {
		return 0, 0, false
	}
	high, isHigh := digit(text[len(escape)])
	low, isLow := digit(text[len(escape)+1])
	return high, low, isHigh && isLow
}

func digit(c byte) (value byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	default:
		return 0, false
	}
}
