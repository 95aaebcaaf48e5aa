package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestLogLinesAreEscaped: whatever text a caller chose, a log line stays one line, and has no
// character that a terminal would not show as it is: line breaks, escape sequences, and what
// changes the direction of text or has no width.
func TestLogLinesAreEscaped(t *testing.T) {
	t.Parallel()
	for _, hostile := range []string{
		"a\r\nlevel=ERROR msg=forged", "\x1b[2J\x1b]0;title\a", "run\u202etxt.exe", "\u2066x\u2069", "zero\u200bwidth\ufeff", "\u2028\u2029", "\x7f\u009b31m", "\U000e0041",
		"\x00\b\t", "plain é 日本 \U0001f600", `quote " and \u0041`,
	} {
		for _, format := range []string{"text", "json"} {
			var out bytes.Buffer
			log, err := NewLogger(&out, "info", format)
			if err != nil {
				t.Fatal(err)
			}
			log.Warn("something happened", "run", hostile, "err", hostile)
			line, ended := strings.CutSuffix(out.String(), "\n")
			if !ended || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: %q", format, line)
			}
			var fields map[string]string
			if format == "json" {
				if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["run"] != hostile {
					t.Errorf("%q: %v", fields["run"], err)
				}
			}
		}
	}
}
