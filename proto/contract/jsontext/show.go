package jsontext

import "strconv"

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
