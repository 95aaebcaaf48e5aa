package session

import (
	"strings"
	"testing"
	"time"
)

// TestMoment: a table of times as they are typed, in UTC where they name no offset, and what each
// means on a Wednesday at 10:30.
func TestMoment(t *testing.T) {
	now := time.Date(2026, 2, 11, 10, 30, 0, 5, time.UTC)
	for _, test := range []struct{ text, want string }{
		{"2026-02-11T10:30:00Z", "2026-02-11T10:30:00Z"},
		{"2026-02-11T10:30:00.000000005Z", "2026-02-11T10:30:00.000000005Z"},
		{"2026-02-11T11:30:00.000000005+01:00", "2026-02-11T10:30:00.000000005Z"},
		{"2026-11-23T02:21", "2026-11-23T02:21:00Z"},
		{"2026-11-23T02:21Z", "2026-11-23T02:21:00Z"},
		{"2026-11-23T02:21-05:00", "2026-11-23T07:21:00Z"},
		{"2026-11-23T02:21:09", "2026-11-23T02:21:09Z"},
		{"2026-11-23T02:21:09.125", "2026-11-23T02:21:09.125Z"},
		{"2026-11-23 02:21", "2026-11-23T02:21:00Z"},
		{"2026-11-23 02:21:09", "2026-11-23T02:21:09Z"},
		{"2026-11-23 02:21:09Z", "2026-11-23T02:21:09Z"},
		{"2026-11-23 02:21+01:00", "2026-11-23T01:21:00Z"},
		{"2026-02-11", "2026-02-11T00:00:00Z"},
		{"today", "2026-02-11T00:00:00Z"},
		{"yesterday", "2026-02-10T00:00:00Z"},
		{"now", "2026-02-11T10:30:00.000000005Z"},
		{"-0s", "2026-02-11T10:30:00.000000005Z"},
		{"-5m", "2026-02-11T10:25:00.000000005Z"},
		{"-90m", "2026-02-11T09:00:00.000000005Z"},
		{"-24h", "2026-02-10T10:30:00.000000005Z"},
		{"-7d", "2026-02-04T10:30:00.000000005Z"},
		{"-1w2d3h4m5s", "2026-02-02T07:25:55.000000005Z"},
	} {
		// The zone of the machine must not matter.
		for _, zone := range []*time.Location{time.UTC, time.FixedZone("east", 14*3600), time.FixedZone("west", -12*3600)} {
			got, err := Moment("from", test.text, now.In(zone))
			if err != nil || got.AsTime().Format(time.RFC3339Nano) != test.want {
				t.Errorf("%s in %v is %v, %v; want %s", test.text, zone, got.AsTime(), err, test.want)
			}
		}
	}
	for text, want := range map[string]string{
		"": "is no time", "-": "is no time", "-h": "is no time", "-5": "is no time", "-5x": "is no time", "-5h5": "is no time", "+5h": "is no time",
		"24h": "; -24h is this long before now", "5m": "; -5m is this long before now", "--5h": "is no time", "-1.5h": "is no time",
		"tomorrow": "is no time", "Today": "is no time", "10:30": "2026-02-11T10:30 (UTC)", "11.02.2026": "is no time", "2026-02": "is no time",
		"2026-02-30": "is no time", "2026-02-11T24:01": "is no time", "2026-02-11T10": "is no time",
		"2026-02-11T10:30 CET": "is no time", "2026-02-11T10:30:00+0100": "is no time", "1770805800": "is no time", "today ": "is no time",
		"-99999999999h": "is no time", "-2000000000w": "is no time", "1969-12-31": "between 1970 and 2262", "2262-04-12": "between 1970 and 2262",
		"-3000w": "between 1970 and 2262",
	} {
		at, err := Moment("as-of-time", text, now)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--as-of-time ") {
			t.Errorf("%q is taken for %v, %v; want %q", text, at.AsTime(), err, want)
		}
	}
}

// TestAheadHelp: a time that may lie ahead is not told to lie before now.
func TestAheadHelp(t *testing.T) {
	for text, want := range map[string]string{"10m": "+10m or +7d; +10m is this long from now", "soon": "2026-02-11, +10m or +7d"} {
		if _, err := Ahead("not-before", text, time.Now()); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v; want %q at the end", text, err, want)
		}
	}
}

// TestRunMomentTR7: a runSeq and a position stay as they are, and a time becomes one of the API.
func TestRunMomentTR7(t *testing.T) {
	now := time.Date(2026, 2, 11, 10, 30, 0, 5, time.UTC)
	for text, want := range map[string]string{
		"0": "0", "12": "12", "20260211": "20260211", "6f1c2a9d0b7e4c53-48211": "6f1c2a9d0b7e4c53-48211",
		"now": "2026-02-11T10:30:00.000000005Z", "-5m": "2026-02-11T10:25:00.000000005Z", "2026-02-11": "2026-02-11T00:00:00Z",
		"2026-02-11T11:30:00.5+01:00": "2026-02-11T10:30:00.5Z",
	} {
		if got, err := RunMoment("from", text, now); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "noon", "+12", "1.5", "-12", "6f1c2a9d0b7e4c5-1", "6F1C2A9D0B7E4C53-1", "1969-12-31"} {
		if got, err := RunMoment("from", text, now); err == nil || !strings.HasPrefix(err.Error(), "--from ") {
			t.Errorf("%q is taken for %q, %v", text, got, err)
		}
	}
}

// FuzzRunMoment parses any text as a moment of a run (TR-7). A moment is a runSeq, a position or a
// time of the API, which is taken for itself again.
func FuzzRunMoment(f *testing.F) {
	now := time.Date(2026, 2, 11, 10, 30, 0, 5, time.UTC)
	for _, text := range []string{"", "12", "6f1c2a9d0b7e4c53-48211", "-1w2d", "today", "2026-02-11 10:30", "2026-02-11T10:30:00.125+01:00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := RunMoment("to", text, now)
		if err != nil {
			return
		}
		if again, err := RunMoment("to", m, now.Add(time.Hour)); err != nil || again != m {
			t.Fatalf("%q is %q, and that is %q, %v", text, m, again, err)
		}
	})
}
