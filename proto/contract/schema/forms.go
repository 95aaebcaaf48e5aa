package schema

import "runlog/proto/contract/jsontext"

// textForm is a form that a string must have: as a schema writes it, and as a check.
type textForm struct {
	pattern, format string
	matches         func(text []byte) bool
	help            string
	// shown reports whether a snapshot shows the text as it is written in JSON, and shows tells
	// which it does.
	shown func(written []byte) bool
	shows string
}

// textForms holds the forms that a payload schema may demand. The pattern beside date-time is for
// validators that treat formats as annotations, as draft 2020-12 allows. It covers RFC 3339 except
// the ranges, the days of the months and the leap seconds.
var textForms = [...]textForm{
	{
		pattern: "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
		format:  "date-time",
		matches: func(text []byte) bool { _, formed, _ := jsontext.Time(text); return formed },
		help:    "a time in RFC 3339, such as 2026-02-11T10:30:00.123Z",
		shown:   func(written []byte) bool { _, _, ok := jsontext.Time(written); return ok },
		shows:   "times of the years 1 to 9999 in UTC, without leap seconds and escapes",
	},
	{
		pattern: "^[0-9a-fA-F]{64}$",
		matches: isSHA256,
		help:    "64 hexadecimal digits",
		shown:   isSHA256,
	},
}

// hexDigits marks the digits of hexadecimal numbers.
var hexDigits = func() (t [256]bool) {
	for _, c := range "0123456789abcdefABCDEF" {
		t[c] = true
	}
	return t
}()

func isSHA256(text []byte) bool {
	if len(text) != 64 {
		return false
	}
	for _, c := range text {
		if !hexDigits[c] {
			return false
		}
	}
	return true
}
