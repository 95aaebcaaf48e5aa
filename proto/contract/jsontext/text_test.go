package jsontext

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTexts(t *testing.T) {
	for _, c := range []struct{ quoted, text, lossless string }{
		{`"plain"`, "plain", "plain"},
		{`""`, "", ""},
		{`"a\"b\\\u00e9\ud83d\ude00\/\b\f\n\r\t"`, "a\"b\\é😀/\b\f\n\r\t", "a\"b\\é😀/\b\f\n\r\t"},
		{`"lone \ud800 half"`, "lone \ufffd half", "lone \xed\xa0\x80 half"},
		{`"\ude00\ud83d"`, "\ufffd\ufffd", "\xed\xb8\x80\xed\xa0\xbd"},
		{`"\ud83d\ud83d\ude00"`, "\ufffd😀", "\xed\xa0\xbd😀"},
		{`"\ud83d\n"`, "\ufffd\n", "\xed\xa0\xbd\n"},
		{`"\ud83d\u00zz"`, "", "\xed\xa0\xbd\\u00zz"},
		{"\"bad \xff byte\"", "bad \ufffd byte", "bad \xff byte"},
		{`"bad \x escape"`, "", `bad \x escape`},
		{`"\"`, "", `\`},
		{`"\u12"`, "", `\u12`},
		{"\"a\nb\"", "", "a\nb"},
	} {
		if got := Text([]byte(c.quoted)); got != c.text {
			t.Errorf("Text(%s) = %q, want %q", c.quoted, got, c.text)
		}
		if got := Unquote([]byte(c.quoted)); got != c.lossless {
			t.Errorf("Unquote(%s) = %q, want %q", c.quoted, got, c.lossless)
		}
	}
	for _, other := range []string{`7`, `null`, `{"a":"b"}`, ``, `"`, `"a`, `a"b"`} {
		if got := Text([]byte(other)); got != "" {
			t.Errorf("Text(%s) = %q", other, got)
		}
		if inner, ok := Plain([]byte(other)); ok {
			t.Errorf("Plain(%s) = %q", other, inner)
		}
	}
}

func TestPlain(t *testing.T) {
	for quoted, want := range map[string]bool{
		`"plain"`: true, `""`: true, `"é"`: true, `"twelve bytes"`: true, "\"\x7f\"": true, `"0123456789é"`: true,
		`"\n"`: false, "\"\n\"": false, "\"01234567\x1f\"": false, "\"\xff\"": false, "\"0123456\xff9\"": false, `"0123456\\9"`: false,
	} {
		inner, ok := Plain([]byte(quoted))
		if ok != want || ok && string(inner) != Text([]byte(quoted)) {
			t.Errorf("%s: %v %q", quoted, ok, inner)
		}
	}
}

// TestIsCleanEightAtATime compares looking at eight bytes at a time with looking at one.
func TestIsCleanEightAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(rapid.StringOfN(rapid.RuneFrom([]rune("ab \\\x1f\x00\"é\x7f~")), 0, 40, -1).Draw(t, "text"))
		if i := rapid.IntRange(-1, len(b)-1).Draw(t, "at"); i >= 0 {
			b[i] = rapid.Byte().Draw(t, "byte")
		}
		want := bytes.IndexFunc(b, func(r rune) bool { return r < ' ' || r == '\\' }) < 0
		wantASCII := want && bytes.IndexFunc(b, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
		if got, ascii := isClean(b); got != want || ascii != wantASCII {
			t.Fatalf("%q: %v %v, want %v %v", b, got, ascii, want, wantASCII)
		}
	})
}

func TestAppendQuoted(t *testing.T) {
	const text = "é\u2028<&>\x7f\"\\/\b\f\n\r\t\x01\x1f end"
	const want = "x\"é\u2028<&>\x7f\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f end\""
	if got := string(AppendQuoted([]byte("x"), text)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSplitNumber(t *testing.T) {
	for number, want := range map[string]string{
		"0": "0||", "-0": "-0||", "12.50E+1": "12|50|+1", "-1e-9": "-1||-9", "0.5": "0|5|",
	} {
		negative, whole, fraction, exponent := SplitNumber([]byte(number))
		got := string(whole) + "|" + string(fraction) + "|" + string(exponent)
		if negative {
			got = "-" + got
		}
		if got != want {
			t.Errorf("%s: %s, want %s", number, got, want)
		}
	}
}

func TestShow(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":1}`: "an object", `[]`: "an array", `"é\n"`: `"\u00e9\n"`, `-1.5`: "-1.5", `null`: "null",
		strings.Repeat("9", 41):                   strings.Repeat("9", 40) + "…",
		`"` + strings.Repeat("é", 33) + `"`:       `"` + strings.Repeat(`\u00e9`, 32) + `"…`,
		`"` + strings.Repeat("a", 63) + "é" + `"`: `"` + strings.Repeat("a", 63) + `\xc3"…`,
	} {
		if got := Show([]byte(value)); got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
}

// FuzzText compares the text of strings with encoding/json.
func FuzzText(f *testing.F) {
	for _, s := range []string{`"a"`, `"\ud83d\ude00\ud83d"`, "\"\xff\"", `"\u00e9\/"`, `"\x"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, quoted []byte) {
		if len(quoted) == 0 || quoted[0] != '"' || SkipString(quoted, 0) != len(quoted) {
			t.Skip() // Not one token.
		}
		text, lossless := Text(quoted), Unquote(quoted)
		var want string
		err := json.Unmarshal(quoted, &want)
		if err != nil {
			want = ""
		}
		if text != want {
			t.Fatalf("Text(%s) = %q, encoding/json has %q", quoted, text, want)
		}
		if _, fault := ScanString(quoted, 0); fault == 0 && err == nil && utf8.ValidString(lossless) && lossless != text {
			t.Fatalf("Unquote(%s) = %q, encoding/json has %q", quoted, lossless, text)
		}
		if !utf8.ValidString(text) {
			t.Fatalf("Text(%s) is not UTF-8", quoted)
		}
		written := AppendQuoted(nil, text)
		if end, fault := ScanString(written, 0); fault != 0 || end != len(written) || Unquote(written) != text {
			t.Fatalf("%q written as %s: %s", text, written, fault)
		}
	})
}
