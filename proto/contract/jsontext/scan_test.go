package jsontext

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// nested is an object with so many levels, itself included.
func nested(begin, end string, levels int) string {
	return `{"a":` + strings.Repeat(begin, levels-1) + "1" + strings.Repeat(end, levels-1) + `}`
}

func TestENV7CheckObject(t *testing.T) {
	for _, c := range []struct {
		text  string
		pos   int
		fault Fault
	}{
		{`{}`, 2, 0},
		{" \t\r\n{ } \n", 9, 0},
		{`{"a":[{},[],"",0,-0.5e+10,true,false,null]}`, 43, 0},
		{"{\"a\":\"\x7f€😀\"}", 16, 0},
		{nested("[", "]", 64), len(nested("[", "]", 64)), 0},
		{nested(`{"b":`, "}", 64), len(nested(`{"b":`, "}", 64)), 0},
		{nested("[", "]", 65), 5 + 63, FaultDepth},
		{nested(`{"b":`, "}", 65), 5 + 5*63, FaultDepth},
		{``, 0, FaultObject},
		{`  `, 2, FaultObject},
		{`[]`, 0, FaultObject},
		{"\xef\xbb\xbf{}", 0, FaultObject},
		{`{`, 1, FaultEnd},
		{`{"a"`, 4, FaultEnd},
		{`{"a":`, 5, FaultEnd},
		{`{"a":1`, 6, FaultEnd},
		{`{"a":"x`, 7, FaultEnd},
		{`{"a":1,`, 7, FaultEnd},
		{`{"a":[`, 6, FaultEnd},
		{`{"a":1,}`, 7, FaultName},
		{`{1:2}`, 1, FaultName},
		{`{"a" 1}`, 5, FaultColon},
		{`{"a":[1,]}`, 8, FaultValue},
		{`{"a":[,1]}`, 6, FaultValue},
		{`{"a":nul}`, 5, FaultValue},
		{`{"a":tru`, 5, FaultValue},
		{`{"a":NaN}`, 5, FaultValue},
		{`{"a":1 2}`, 7, FaultSeparator},
		{`{"a":[1}`, 7, FaultSeparator},
		{`{"a":{"b":1]}`, 11, FaultSeparator},
		{`{"a":01}`, 6, FaultSeparator},
		{`{"a":1.}`, 7, FaultNumber},
		{`{"a":-}`, 6, FaultNumber},
		{`{"a":1e}`, 7, FaultNumber},
		{`{"a":1e+}`, 8, FaultNumber},
		{`{"a":.5}`, 5, FaultValue},
		{`{"a":+1}`, 5, FaultValue},
		{`{"a":"\x"}`, 6, FaultEscape},
		{`{"a":"\u12g4"}`, 6, FaultEscape},
		{`{"a":"\u123`, 6, FaultEscape},
		{`{"a":"\`, 6, FaultEscape},
		{"{\"a\":\"\n\"}", 6, FaultControl},
		{"{\"a\":\"\xff\"}", 6, FaultUTF8},
		{"{\"a\":\"\xed\xa0\x80\"}", 6, FaultUTF8},
		{"{\"\xc0\x80\":1}", 2, FaultUTF8},
		{`{}{}`, 2, FaultTrailing},
		{`{} x`, 3, FaultTrailing},
	} {
		pos, fault := CheckObject([]byte(c.text), MaxDepth)
		if pos != c.pos || fault != c.fault {
			t.Errorf("%q: got %d %q, want %d %q", c.text, pos, fault, c.pos, c.fault)
		}
		checkAgainstEncodingJSON(t, []byte(c.text))
	}
}

// checkAgainstEncodingJSON compares CheckObject with the standard library, which knows neither the
// depth nor the UTF-8 rule.
func checkAgainstEncodingJSON(t testing.TB, text []byte) {
	_, fault := CheckObject(text, MaxDepth)
	want := json.Valid(text) && utf8.Valid(text) && strings.HasPrefix(strings.TrimLeft(string(text), " \t\r\n"), "{")
	if fault == FaultDepth {
		return
	}
	if got := fault == 0; got != want {
		t.Errorf("%q: valid %v (%s), encoding/json says %v", text, got, fault, want)
	}
}

func TestCheckObjectDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { CheckObject(samplePayload, MaxDepth) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An event has one level more than its payload.
func TestENV7RoomOfAnEvent(t *testing.T) {
	for _, c := range []struct{ begin, end string }{{"[", "]"}, {`{"b":`, "}"}, {`[{"b":`, "}]"}} {
		levels := strings.Count(c.begin, "[") + strings.Count(c.begin, "{")
		for n := 60 / levels; n <= 68/levels; n++ {
			text := nested(c.begin, c.end, n+1)
			want := Fault(0)
			if 1+n*levels > MaxDepth+1 {
				want = FaultDepth
			}
			if _, fault := CheckObject([]byte(text), MaxDepth+1); fault != want {
				t.Errorf("%s: %q, want %q", text, fault, want)
			}
		}
	}
}

// TestScanStringEightAtATime compares looking at eight bytes at a time with looking at one.
func TestScanStringEightAtATime(t *testing.T) {
	parts := []string{`\n`, `\x`, `"`, "a", " ", "\x1f", "\x7f", "\x80", "é", "0123456", `\u00`}
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(`"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 12).Draw(t, "parts"), ""))
		end, fault := ScanString(b, 0)
		wantEnd, want := 1, Fault(0)
		for closed := false; want == 0 && !closed; {
			switch rest := b[wantEnd:]; {
			case len(rest) == 0:
				want = FaultEnd
			case rest[0] == '"':
				wantEnd, closed = wantEnd+1, true
			case rest[0] < ' ':
				want = FaultControl
			case rest[0] == '\\':
				n := escapeLen(rest)
				if wantEnd += n; n == 0 {
					want = FaultEscape
				}
			default:
				r, n := utf8.DecodeRune(rest)
				if wantEnd += n; r == utf8.RuneError && n == 1 {
					wantEnd, want = wantEnd-1, FaultUTF8
				}
			}
		}
		if end != wantEnd || fault != want {
			t.Fatalf("%q: %d %v, want %d %v", b, end, fault, wantEnd, want)
		}
	})
}
