package jsontext

import (
	"testing"
	"time"
)

// TestTimesENV12: which texts are times, and which of them a snapshot shows. Package projector/run
// holds those that are shown against package time, and package schema holds those that are times
// against a JSON Schema library.
func TestTimesENV12(t *testing.T) {
	for text, want := range map[string]struct{ formed, ok bool }{
		"2026-02-11T10:30:00Z":           {true, true},
		"2026-02-11t10:30:00.5z":         {true, true},
		"0001-01-01T00:00:00.000000001Z": {true, true},
		"0001-01-01T00:00:00Z":           {true, false},
		"0000-06-01T00:00:00Z":           {true, false},
		"0001-01-01T00:00:00+01:00":      {true, false},
		"0000-12-31T23:30:00-01:00":      {true, true},
		"9999-12-31T23:59:59-00:01":      {true, false},
		"2016-12-31T23:59:60Z":           {true, false},
		"2017-01-01T00:59:60.5+01:00":    {true, false},
		"2016-12-31T23:58:60Z":           {false, false},
		"2016-12-31T23:59:61Z":           {false, false},
		"2026-02-11T10:30:00\\u005a":     {false, false},
		"2026-02-30T10:30:00Z":           {false, false},
		"":                               {false, false},
	} {
		if at, formed, ok := Time([]byte(text)); formed != want.formed || ok != want.ok || at.IsZero() == ok {
			t.Errorf("%s: %v %v %v, want %v", text, at, formed, ok, want)
		}
	}
	if at, _, _ := Time([]byte("0000-12-31T23:30:00-01:00")); !at.Equal(time.Date(1, 1, 1, 0, 30, 0, 0, time.UTC)) {
		t.Errorf("%v", at)
	}
}

// TestSizesENV12: what is read, and whether it is what was written.
func TestSizesENV12(t *testing.T) {
	for text, want := range map[string]struct {
		n         int64
		exact, ok bool
	}{
		"0": {0, true, true}, "1e3": {1000, true, true}, "1.50e1": {15, true, true}, `"12"`: {12, true, true}, "-0.0": {0, true, true},
		"9223372036854775807":     {1<<63 - 1, true, true},
		"9007199254740991.0":      {1<<53 - 1, true, true},
		"9007199254740993.0":      {1 << 53, false, true},
		"9.223372036854775807e18": {0, false, false},
		"9223372036854775808":     {0, false, false},
		"1e300":                   {0, false, false},
		"1.5":                     {0, false, false},
		`"1e3"`:                   {0, false, false},
		"":                        {0, false, false},
	} {
		n, exact, ok := Size([]byte(text))
		if ok != want.ok || ok && (n != want.n || exact != want.exact) {
			t.Errorf("%s: %d %v %v, want %v", text, n, exact, ok, want)
		}
	}
	if n, _, ok := Size([]byte("-1")); ok {
		t.Errorf("-1 is the size %d", n)
	}
}
