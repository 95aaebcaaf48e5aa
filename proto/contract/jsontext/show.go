package jsontext

import (
	"bytes"
	"encoding/base64"
	"strconv"
)

// Show describes a checked value in an error message: "an object", "an array", or the beginning of
// the value itself.
func Show(value []byte) string {
	const most = 40
	switch {
	case value[0] == '{':
		return "an object"
	case value[0] == '[':
		return "an array"
	case value[0] == '"':
		return Quote(Text(value))
	case len(value) > most:
		return string(value[:most]) + "…"
	}
	return string(value)
}

// Quote quotes the beginning of a text in an error message: printable ASCII and short, whatever the
// text is.
func Quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// FitsLine reports whether a line of JSON can hold an object byte for byte: it has no line break
// and no white space around it.
func FitsLine(object []byte) bool {
	n := len(object)
	return n >= 2 && object[0] == '{' && object[n-1] == '}' && bytes.IndexByte(object, '\n') < 0 && bytes.IndexByte(object, '\r') < 0
}

// AppendInLine appends a comma and a member with an object as it is or, if a line cannot hold it,
// with Json behind its name and the object in base64.
func AppendInLine(dst []byte, member string, object []byte) []byte {
	dst = append(append(dst, `,"`...), member...)
	if FitsLine(object) {
		return append(append(dst, `":`...), object...)
	}
	return append(base64.StdEncoding.AppendEncode(append(dst, `Json":"`...), object), '"')
}
