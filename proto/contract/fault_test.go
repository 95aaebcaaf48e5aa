package contract

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestPlainENV3: each byte, at each place of texts around the 8 bytes that plain looks at together.
// Whatever plain passes is a name and a text by the rules that are written out here.
func TestPlainENV3(t *testing.T) {
	name := func(s string) bool {
		return s != "" && s != "." && s != ".." && len(s) <= 256 && utf8.ValidString(s) && s == strings.TrimSpace(s) &&
			!strings.ContainsFunc(s, func(r rune) bool { return r == '|' || unicode.IsControl(r) })
	}
	text := func(s string) bool {
		return len(s) <= 256 && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
	}
	check := func(s string) {
		t.Helper()
		if is := NameFault(s) == ""; is != name(s) {
			t.Errorf("%q: a name: %v, want %v", s, is, !is)
		}
		if is := TextFault(s) == ""; is != text(s) {
			t.Errorf("%q: a text: %v, want %v", s, is, !is)
		}
	}
	check("")
	for n := 1; n <= 25; n++ {
		for at := range n {
			for c := range 256 {
				b := []byte(strings.Repeat("a", n))
				b[at] = byte(c)
				check(string(b))
				b[n-1-at] = 0xc3 // and a byte of a rune, alone or with c
				check(string(b))
			}
		}
	}
	for _, n := range []int{255, 256, 257} {
		check(strings.Repeat("~", n))
		check(strings.Repeat("~", n-1) + "|")
	}
}
