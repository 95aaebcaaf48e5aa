package output

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printable escapes in lines of JSON the characters that JSON allows and that do not print, such as
// those that change the direction of text. The handler of text quotes them by itself.
type printable struct{ w io.Writer }

// Write writes a line with its line break.
func (p printable) Write(line []byte) (int, error) {
	var out []byte
	done := 0
	for i, r := range string(line) {
		if r < utf8.RuneSelf && r != 0x7f || unicode.IsPrint(r) {
			continue
		}
		out = append(out, line[done:i]...)
		out = escaped(out, r)
		done = i + max(utf8.RuneLen(r), 1)
	}
	if done == 0 {
		return p.w.Write(line)
	}
	if _, err := p.w.Write(append(out, line[done:]...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// escaped appends a character as JSON escapes it.
func escaped(out []byte, r rune) []byte {
	for _, unit := range utf16.Encode([]rune{r}) {
		out = fmt.Appendf(out, `\u%04x`, unit)
	}
	return out
}
