package jsontext

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A Cursor yields what stands before the first fault that it meets.
func TestCursorStopsAtTheFirstFault(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":2}`:         "a=1 b=2",
		` {"a" : 1 , "b":[2] }`: "a=1 b=[2]",
		`{"\u0061":"}\\\""}`:    `a="}\\\""`,
		`{"a":1,"a":2}`:         "a=1 a=2",
		`{"a":nonsense}`:        "a=nonsense",
		`{"a":1,"b":`:           "a=1",
		`{"a":1 "b":2}`:         "a=1",
		`{"a":1,,"b":2}`:        "a=1",
		`{,"a":1}`:              "",
		`{"a":1,b:2}`:           "a=1",
		`{"a":1,"b"2}`:          "a=1",
		`{"a":1,"b":"2}`:        "a=1",
		`{"a":1,"b":{"c":[}`:    "a=1",
		`{"a":{"b":"]"},"c":3`:  `a={"b":"]"} c=3`,
		`{"long name with an escape \n in it":1}`: "long name with an escape \n in it=1",
		`{"long name without any escape":""}`:     `long name without any escape=""`,
		`[1]`:                                     "", `{`: "", `{"`: "", `{"a`: "", `{"a\`: "", ``: "", ` `: "", `1`: "",
	} {
		var got []string
		c := Members([]byte(text))
		for name, value, ok := c.Member(); ok; name, value, ok = c.Member() {
			got = append(got, fmt.Sprintf("%s=%s", name, value))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		`[1,"2",{},[],null]`: `1 "2" {} [] null`, "[ 1 ,\n2 ]": "1 2", `[]`: "", `[1,,2]`: "1", `[1 2]`: "1", `[1,`: "1", `[[]`: "[]", `[[`: "", `{}`: "", ``: "",
	} {
		var got []string
		c := Elements([]byte(text))
		for value, ok := c.Element(); ok; value, ok = c.Element() {
			got = append(got, string(value))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestCursorTellsWhereItIs(t *testing.T) {
	text := []byte(` { "a" : 1 , "b\n" : [ 2 ] } `)
	c := Members(text)
	for _, want := range []string{`"a" : 1`, `"b\n" : [ 2 ]`} {
		name, value, ok := c.Quoted()
		if got := string(name) + " : " + string(value); !ok || got != want || !strings.HasSuffix(string(text[:c.Pos()]), want) {
			t.Errorf("got %s before offset %d, want %s", got, c.Pos(), want)
		}
	}
	if _, _, ok := c.Quoted(); ok || c.Pos() != 0 {
		t.Error("not at the end")
	}
	if _, _, ok := c.Member(); ok {
		t.Error("goes on behind the end")
	}
}

func TestLookup(t *testing.T) {
	const object = `{"a":1,"b":{"a":2},"a":[3],"\u0061b":4}`
	for name, want := range map[string]string{"a": "[3]", "b": `{"a":2}`, "ab": "4"} {
		if got, ok := Lookup([]byte(object), name); string(got) != want || !ok {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, ok := Lookup([]byte(object), "c"); ok {
		t.Error("found what is not there")
	}
	if _, ok := Lookup([]byte(`["a",1]`), "a"); ok {
		t.Error("found a member of an array")
	}
}

func TestSkip(t *testing.T) {
	for text, want := range map[string]int{
		`"a" `: 3, `""`: 2, `"`: -1, `"\"`: -1, `"\\"x`: 4, `"\\\""x`: 6, `"0123456789abcdef"`: 18, `"0123456789abcdef\""`: 20, `"0123456789abcdef\"`: -1,
		`"` + strings.Repeat(`\\`, 20) + `"`: 42, `"` + strings.Repeat(`\"`, 20): -1,
		`[1,"]",{"}":[]}]x`: 16, `[[]`: -1, `{"a"`: -1, `12,`: 2, `null`: 4, `true}`: 4, `x]`: 1, `1:`: 1, "1\n": 1,
		``: -1, `,`: -1, ` 1`: -1, `]`: -1,
	} {
		if got := SkipValue([]byte(text), 0); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
		if text != "" && text[0] == '"' && SkipString([]byte(text), 0) != want {
			t.Errorf("%s as a string: %d, want %d", text, SkipString([]byte(text), 0), want)
		}
	}
}

func TestWalkingDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		c := Members(samplePayload)
		for _, value, ok := c.Member(); ok; _, value, ok = c.Member() {
			Lookup(value, "uri")
			e := Elements(value)
			for _, ok := e.Element(); ok; _, ok = e.Element() {
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestSkipStringEightAtATime compares looking at eight bytes at a time with looking at one.
func TestSkipStringEightAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(`"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{`\`, `"`, "a", "é", "0123456"}), 0, 30).Draw(t, "parts"), ""))
		want := -1
		for i := 1; i < len(b) && want < 0; i++ {
			switch b[i] {
			case '\\':
				i++
			case '"':
				want = i + 1
			}
		}
		got, plain := skipString(b, 0)
		if got != want || plain && bytes.IndexByte(b[:got], '\\') >= 0 {
			t.Fatalf("%s: %d, plain %v; want %d", b, got, plain, want)
		}
	})
}
