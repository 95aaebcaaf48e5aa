package contract

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// NameFault says why s cannot be an id or a name such as runId or planId; empty when it can. A name
// is 1 to 256 bytes of UTF-8 without a control character, without white space at its begin or end,
// and without the vertical bar, which separates the parts of the idempotency key (ENV-3).
func NameFault(s string) string {
	if s == "" {
		return "is required"
	}
	if strings.IndexByte(s, '|') >= 0 {
		return "contains a vertical bar, which separates the parts of the idempotency key: use another character"
	}
	if fault := TextFault(s); fault != "" {
		return fault
	}
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	switch {
	case unicode.IsSpace(first):
		return fmt.Sprintf("begins with the white space %U: remove it", first)
	case unicode.IsSpace(last):
		return fmt.Sprintf("ends with the white space %U: remove it", last)
	}
	return ""
}

// NotUTF8 says what is wrong with text in another encoding.
const NotUTF8 = "is not valid UTF-8: encode all text as UTF-8"

// TextFault says why s cannot be a text of the envelope, which is at most 256 bytes of UTF-8
// without control characters; empty when it can.
func TextFault(s string) string {
	if len(s) > maxTextBytes {
		return fmt.Sprintf("is %d bytes long: send at most %d", len(s), maxTextBytes)
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			return unusualTextFault(s)
		}
	}
	return ""
}

// unusualTextFault looks at text beyond printable ASCII character by character.
func unusualTextFault(s string) string {
	if !utf8.ValidString(s) {
		return NotUTF8
	}
	for i, r := range s {
		if unicode.IsControl(r) {
			return fmt.Sprintf("contains the control character %U at byte %d: remove it", r, i)
		}
	}
	return ""
}
