package contract

import "unicode/utf8"

// MaxDepth is how many arrays and objects of a payload may lie within each other, itself included.
// The bound keeps every walk over a payload, here and in the rooms further in, from recursing deep.
const MaxDepth = 64

// What a JSON text can be refused for. Scanners return the position of the fault with one of these;
// the empty string means that there is none.
const (
	badEnd       = "the text ends in the middle of a value"
	badValue     = "a value was expected"
	badName      = "a member name in double quotes was expected"
	badColon     = "a colon was expected"
	badSeparator = "a comma or a closing bracket was expected"
	badNumber    = "a malformed number"
	badEscape    = "an unknown escape in a string"
	badControl   = "an unescaped control character in a string"
	badUTF8      = "invalid UTF-8"
	badDepth     = "nested deeper than 64 levels"
	badTrailing  = "more text after the value"
	badObject    = "not a JSON object"
)

// plain marks the bytes that a string may hold and that need no closer look.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// checkObject reports whether b is one JSON object (RFC 8259) in valid UTF-8, with white space
// around it at most, nested at most MaxDepth levels. It returns the fault and its position. It
// neither allocates nor recurses.
func checkObject(b []byte) (pos int, fault string) {
	start := skipSpace(b, 0)
	if start == len(b) || b[start] != '{' {
		return start, badObject
	}
	end, fault := scanValue(b, start)
	if fault != "" {
		return end, fault
	}
	if end = skipSpace(b, end); end < len(b) {
		return end, badTrailing
	}
	return end, ""
}

// scanValue walks over the value that begins at b[i], white space before it included, and returns
// the position after it, or that of its fault.
func scanValue(b []byte, i int) (int, string) {
	return scanWithin(b, i, MaxDepth)
}

// scanWithin is scanValue for a value that lies within others, which leave it room for so many
// arrays and objects within each other, at most MaxDepth.
func scanWithin(b []byte, i, room int) (int, string) {
	var objects uint64 // Bit d is set where the container at depth d is an object.
	depth := 0
	for {
		i = skipSpace(b, i)
		if i == len(b) {
			return i, badEnd
		}
		var fault string
		switch b[i] {
		case '{', '[':
			if depth == room {
				return i, badDepth
			}
			object := b[i] == '{'
			objects &^= 1 << depth
			if object {
				objects |= 1 << depth
			}
			depth++
			i = skipSpace(b, i+1)
			if i < len(b) && (object && b[i] == '}' || !object && b[i] == ']') {
				i++
				depth--
				break
			}
			if object {
				if i, fault = scanName(b, i); fault != "" {
					return i, fault
				}
			}
			continue
		default:
			if i, fault = scanScalar(b, i); fault != "" {
				return i, fault
			}
		}
		if i, depth, fault = scanAfter(b, i, depth, objects); fault != "" || depth == 0 {
			return i, fault
		}
	}
}

// scanAfter walks from the end of a value over the brackets that close there and, when a container
// is still open, over the comma and the member name to the place where the next value begins.
func scanAfter(b []byte, i, depth int, objects uint64) (int, int, string) {
	for depth > 0 {
		i = skipSpace(b, i)
		if i == len(b) {
			return i, depth, badEnd
		}
		object := objects>>(depth-1)&1 == 1
		switch c := b[i]; {
		case c == ',' && object:
			i, fault := scanName(b, skipSpace(b, i+1))
			return i, depth, fault
		case c == ',':
			return i + 1, depth, ""
		case c == '}' && object, c == ']' && !object:
			i++
			depth--
		default:
			return i, depth, badSeparator
		}
	}
	return i, 0, ""
}

// scanName walks over a member name that begins at b[i] and the colon after it.
func scanName(b []byte, i int) (int, string) {
	if i == len(b) {
		return i, badEnd
	}
	if b[i] != '"' {
		return i, badName
	}
	i, fault := scanString(b, i)
	if fault != "" {
		return i, fault
	}
	i = skipSpace(b, i)
	if i == len(b) {
		return i, badEnd
	}
	if b[i] != ':' {
		return i, badColon
	}
	return i + 1, ""
}

func scanScalar(b []byte, i int) (int, string) {
	switch c := b[i]; {
	case c == '"':
		return scanString(b, i)
	case c == '-' || '0' <= c && c <= '9':
		return scanNumber(b, i)
	case c == 't':
		return scanLiteral(b, i, "true")
	case c == 'f':
		return scanLiteral(b, i, "false")
	case c == 'n':
		return scanLiteral(b, i, "null")
	}
	return i, badValue
}

func scanLiteral(b []byte, i int, literal string) (int, string) {
	if len(b)-i < len(literal) || string(b[i:i+len(literal)]) != literal {
		return i, badValue
	}
	return i + len(literal), ""
}

// scanString walks over the string whose opening quote is b[i].
func scanString(b []byte, i int) (int, string) {
	i++
	for {
		for i < len(b) && plain[b[i]] {
			i++
		}
		if i == len(b) {
			return i, badEnd
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, ""
		case c == '\\':
			n := escapeLen(b[i:])
			if n == 0 {
				return i, badEscape
			}
			i += n
		case c < 0x20:
			return i, badControl
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return i, badUTF8
			}
			i += n
		}
	}
}

// escapeLen returns the length of the escape that b begins with, 0 when it is none.
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

func scanNumber(b []byte, i int) (int, string) {
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++ // No digit may follow a leading zero; one that does is found as a missing comma.
	default:
		end := skipDigits(b, i)
		if end == i {
			return i, badNumber
		}
		i = end
	}
	if i < len(b) && b[i] == '.' {
		end := skipDigits(b, i+1)
		if end == i+1 {
			return end, badNumber
		}
		i = end
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		end := skipDigits(b, i)
		if end == i {
			return i, badNumber
		}
		i = end
	}
	return i, ""
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}
