package contract

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func nested(begin, end string, levels int) string {
	return `{"a":` + strings.Repeat(begin, levels-1) + "1" + strings.Repeat(end, levels-1) + `}`
}

func TestENV7CheckObject(t *testing.T) {
	for _, c := range []struct {
		text  string
		pos   int
		fault string
	}{
		{`{}`, 2, ""},
		{" \t\r\n{ } \n", 9, ""},
		{`{"a":[{},[],"",0,-0.5e+10,true,false,null]}`, 43, ""},
		{"{\"a\":\"\x7f€😀\"}", 16, ""},
		{nested("[", "]", 64), len(nested("[", "]", 64)), ""},
		{nested(`{"b":`, "}", 64), len(nested(`{"b":`, "}", 64)), ""},
		{nested("[", "]", 65), 5 + 63, badDepth},
		{``, 0, badObject},
		{`  `, 2, badObject},
		{`[]`, 0, badObject},
		{"\xef\xbb\xbf{}", 0, badObject},
		{`{`, 1, badEnd},
		{`{"a"`, 4, badEnd},
		{`{"a":`, 5, badEnd},
		{`{"a":1`, 6, badEnd},
		{`{"a":"x`, 7, badEnd},
		{`{"a":1,`, 7, badEnd},
		{`{"a":[`, 6, badEnd},
		{`{"a":1,}`, 7, badName},
		{`{1:2}`, 1, badName},
		{`{"a" 1}`, 5, badColon},
		{`{"a":[1,]}`, 8, badValue},
		{`{"a":[,1]}`, 6, badValue},
		{`{"a":nul}`, 5, badValue},
		{`{"a":tru`, 5, badValue},
		{`{"a":NaN}`, 5, badValue},
		{`{"a":1 2}`, 7, badSeparator},
		{`{"a":[1}`, 7, badSeparator},
		{`{"a":{"b":1]}`, 11, badSeparator},
		{`{"a":01}`, 6, badSeparator},
		{`{"a":1.}`, 7, badNumber},
		{`{"a":-}`, 6, badNumber},
		{`{"a":1e}`, 7, badNumber},
		{`{"a":1e+}`, 8, badNumber},
		{`{"a":.5}`, 5, badValue},
		{`{"a":+1}`, 5, badValue},
		{`{"a":"\x"}`, 6, badEscape},
		{`{"a":"\u12g4"}`, 6, badEscape},
		{`{"a":"\u123`, 6, badEscape},
		{`{"a":"\`, 6, badEscape},
		{"{\"a\":\"\n\"}", 6, badControl},
		{"{\"a\":\"\xff\"}", 6, badUTF8},
		{"{\"a\":\"\xed\xa0\x80\"}", 6, badUTF8},
		{"{\"\xc0\x80\":1}", 2, badUTF8},
		{`{}{}`, 2, badTrailing},
		{`{} x`, 3, badTrailing},
	} {
		pos, fault := checkObject([]byte(c.text))
		if pos != c.pos || fault != c.fault {
			t.Errorf("%q: got %d %q, want %d %q", c.text, pos, fault, c.pos, c.fault)
		}
		checkAgainstEncodingJSON(t, []byte(c.text))
	}
}

// checkAgainstEncodingJSON compares checkObject with the standard library, which knows neither the
// depth nor the UTF-8 rule.
func checkAgainstEncodingJSON(t testing.TB, text []byte) {
	_, fault := checkObject(text)
	want := json.Valid(text) && utf8.Valid(text) && strings.HasPrefix(strings.TrimLeft(string(text), " \t\r\n"), "{")
	if fault == badDepth {
		return
	}
	if got := fault == ""; got != want {
		t.Errorf("%q: valid %v (%s), encoding/json says %v", text, got, fault, want)
	}
}

func TestCheckObjectDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { checkObject(benchPayload) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
