package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTimesPRJ10(t *testing.T) {
	utc := func(year int, month time.Month, day, hour, minute, second, nanos int) time.Time {
		return time.Date(year, month, day, hour, minute, second, nanos, time.UTC)
	}
	for text, want := range map[string]time.Time{
		`"2026-02-11T10:30:00Z"`:                  utc(2026, 2, 11, 10, 30, 0, 0),
		`"2026-02-11T10:30:00.123456789Z"`:        utc(2026, 2, 11, 10, 30, 0, 123456789),
		`"2026-02-11T10:30:00.1234567899Z"`:       utc(2026, 2, 11, 10, 30, 0, 123456789),
		`"2026-02-11t10:30:00.5z"`:                utc(2026, 2, 11, 10, 30, 0, 5e8),
		`"2026-02-11T00:30:00+01:00"`:             utc(2026, 2, 10, 23, 30, 0, 0),
		`"0001-01-01T00:00:00.000000001Z"`:        utc(1, 1, 1, 0, 0, 0, 1),
		`"9999-12-31T23:59:59.999999999Z"`:        utc(9999, 12, 31, 23, 59, 59, 999999999),
		`"0001-01-01T00:00:00Z"`:                  {}, // means absent
		`"0001-01-01T00:00:00+01:00"`:             {}, // year 0
		`"9999-12-31T23:59:59-01:00"`:             {}, // year 10000
		`"2026-02-30T10:30:00Z"`:                  {},
		`"2026-02-11 10:30:00Z"`:                  {},
		`"2026-02-11T10:30:00"`:                   {},
		`"2026-02-11T10:30:00,5Z"`:                {},
		`"2016-12-31T23:59:60Z"`:                  {}, // a leap second
		`"2026-02-11"`:                            {},
		`"2026-02-11T10:30:00.Z"`:                 {},
		`"2026-02-11T10:30:00.5"`:                 {},
		`"2026-02-11T10:30:00Z0"`:                 {},
		`"2026-02-11T24:00:00Z"`:                  {},
		`"2026-02-11T10:30:00+24:00"`:             {},
		`"2026-02-11T10:30:00+01.00"`:             {},
		`"2026-02-11T10:30:00+0a:00"`:             {},
		`"2026-00-11T10:30:00Z"`:                  {},
		`"2026-02-00T10:30:00Z"`:                  {},
		`"2026-02-11T1 :30:00Z"`:                  {},
		`"2026-02-11T10-30:00Z"`:                  {},
		`"+026-02-11T10:30:00Z"`:                  {},
		`""`:                                      {},
		`1770805800`:                              {},
		`null`:                                    {},
		``:                                        {},
		`"` + strings.Repeat("9", 1000) + `-01-"`: {},
	} {
		if got, ok := value(text).time(); ok != !want.IsZero() || ok && got != want {
			t.Errorf("%s: %v %v, want %v", text, got, ok, want)
		}
	}
}

// Every time that package time writes is read back.
func TestTimesAgreeWithPackageTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unix := rapid.Int64Range(-62135596799, 253402300799).Draw(t, "seconds")
		nanos := rapid.Int64Range(0, 999999999).Draw(t, "nanoseconds")
		minutes := rapid.IntRange(-23*60-59, 23*60+59).Draw(t, "minutes east")
		want := time.Unix(unix, nanos).UTC()
		local := want.In(time.FixedZone("", minutes*60))
		if local.Year() < 1 || local.Year() > 9999 {
			t.Skip("no four-digit year there")
		}
		text := local.Format(`"` + time.RFC3339Nano + `"`)
		if got, ok := value(text).time(); !ok || got != want {
			t.Fatalf("%s: %v %v, want %v", text, got, ok, want)
		}
	})
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		`0`: 0, `12`: 12, `1e+06`: 1000000, `1.5e1`: 15, `9223372036854775807`: 1<<63 - 1, `"9223372036854775807"`: 1<<63 - 1,
		`12.0`: 12, `-0`: 0, `4611686018427387904.0`: 1 << 62,
		`-1`: -1, `1.5`: -1, `9223372036854775808`: -1, `"9223372036854775808"`: -1, `1e400`: -1, `"1e3"`: -1, `"x"`: -1, `""`: -1, `"`: -1,
		`true`: -1, `null`: -1, ``: -1, `0x10`: -1, `Inf`: -1, `nan`: -1, `1_0`: -1, `1e`: -1, `{}`: -1, `[1]`: -1,
	} {
		switch got := value(text).size(); {
		case want < 0 && got != nil:
			t.Errorf("%s: %d, want none", text, *got)
		case want >= 0 && (got == nil || *got != want):
			t.Errorf("%s: %v, want %d", text, got, want)
		}
	}
}

func TestTexts(t *testing.T) {
	for text, want := range map[string]string{
		`"plain"`: "plain", `""`: "", `"a\"b\\\u00e9\ud83d\ude00\/"`: "a\"b\\é😀/",
		`"lone \ud800 half"`: "lone \ufffd half", "\"bad \xff byte\"": "bad \ufffd byte",
		`"bad \x escape"`: "", "\"a\nb\"": "", `7`: "", `null`: "", `{"a":"b"}`: "", ``: "", `"`: "",
	} {
		if got := value(text).text(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestBrokenPayloadsGiveWhatStandsBeforeTheBreak(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":2}`:         "a=1 b=2",
		` {"a" : 1 , "b":[2] }`: "a=1 b=[2]",
		`{"\u0061":"}\\\""}`:    `a="}\\\""`,
		`{"a":1,"b":`:           "a=1",
		`{"a":1 "b":2}`:         "a=1",
		`{"a":1,,"b":2}`:        "a=1",
		`{"a":1,b:2}`:           "a=1",
		`{"a":1,"b"2}`:          "a=1",
		`{"a":1,"b":"2}`:        "a=1",
		`{"a":1,"b":{"c":[}`:    "a=1",
		`{"a":{"b":"]"},"c":3`:  `a={"b":"]"} c=3`,
		`[1]`:                   "",
		`{`:                     "",
		`{}`:                    "",
		``:                      "",
		`"{"`:                   "",
	} {
		var got []string
		for key, v := range payload([]byte(text)).members() {
			got = append(got, fmt.Sprintf("%s=%s", key, v))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// jsonValue draws a JSON value as encoding/json represents it.
func jsonValue() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
	)
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(leaf, 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.String(), leaf, 0, 3), func(m map[string]any) any { return m }),
	)
}

// Of valid JSON the scanner sees what encoding/json sees.
func TestScannerAgreesWithEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(rapid.MapOfN(rapid.String(), jsonValue(), 0, 5).Draw(t, "object"))
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "indented") {
			var b bytes.Buffer
			if err := json.Indent(&b, text, " ", "\t"); err != nil {
				t.Fatal(err)
			}
			text = b.Bytes()
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		for key, v := range value(text).members() {
			got[string(key)] = json.RawMessage(v)
			var wantText string
			if v.isString() && json.Unmarshal(v, &wantText) == nil && v.text() != wantText {
				t.Fatalf("text %q, want %q", v.text(), wantText)
			}
			var wantList []json.RawMessage
			if v.isArray() && json.Unmarshal(v, &wantList) == nil {
				gotList := readList(v, func(v value) json.RawMessage { return json.RawMessage(v) })
				if len(gotList) != len(wantList) || len(wantList) > 0 && !reflect.DeepEqual(gotList, wantList) {
					t.Fatalf("elements %s, want %s", gotList, wantList)
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("members %s, want %s", got, want)
		}
	})
}
