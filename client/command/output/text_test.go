package output

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestText(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Number(0), "0"},
		{Number(999), "999"},
		{Number(1000), "1,000"},
		{Number(12345), "12,345"},
		{Number(123456), "123,456"},
		{Number(uint64(18446744073709551615)), "18,446,744,073,709,551,615"},
		{Plural(1, "event"), "1 event"},
		{Plural(1200, "event"), "1,200 events"},
		{Cut("straße", 6), "straße"},
		{Cut("straße", 5), "stra…"},
		{Cut("anything", 0), "anything"},
		{OneLine("a\nb\tc\x1b[31m\u202e\u0085é"), `a b c\u001b[31m\u202e\u0085é`},
		{Stamp(nil), ""},
		{Stamp(at(0.0004)), "2026-02-11T10:30:00.000Z"},
		{Elapsed(at(1), at(2.5)), "1.5s"},
		{Elapsed(at(1), nil), ""},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

// TestNoInvisibleText: two names that differ do not look the same because a character of one has no
// width, changes the direction, or looks like a blank (ENV-3).
func TestNoInvisibleText(t *testing.T) {
	t.Parallel()
	for _, hidden := range []rune{
		0x00, 0x1b, 0x7f, 0x85, 0xa0, 0xad, 0x34f, 0x61c, 0x115f, 0x180e, 0x200b, 0x200d, 0x200f, 0x2028, 0x202e, 0x2060,
		0x2066, 0x2800, 0x3000, 0x3164, 0xe000, 0xfe0f, 0xfeff, 0xffa0, 0xfff9, 0xe0041, 0xe0100,
	} {
		var out bytes.Buffer
		rows := NewTable(&out, 0, "RUN")
		rows.Row("a" + string(hidden) + "b")
		rows.End()
		got := strings.TrimSpace(strings.TrimPrefix(out.String(), "RUN\n"))
		if want := fmt.Sprintf(`a\u%04xb`, hidden); hidden < 0x10000 && got != want {
			t.Errorf("%U is shown as %q, want %q", hidden, got, want)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return r < 0x20 || r > 0x7e }) || got == "ab" {
			t.Errorf("%U is shown as %q", hidden, got)
		}
	}
	const plain = "straße 日本 e\u0301 \U0001f600"
	if got := OneLine(plain); got != plain {
		t.Errorf("%q is shown as %q", plain, got)
	}
	if got := OneLine("bad \xff"); got != "bad \ufffd" {
		t.Errorf("invalid text is shown as %q", got)
	}
}

func TestTableStreams(t *testing.T) {
	var text bytes.Buffer
	out := bufio.NewWriter(&text)
	rows := NewTable(out, 0, "A", "B")
	for range tableBlock {
		rows.Row("x", "y")
	}
	out.Flush()
	if lines := strings.Count(text.String(), "\n"); lines != tableBlock+1 {
		t.Errorf("%d lines before the end, want the head and one block", lines)
	}
	rows.Row("wider", "z")
	rows.End()
	out.Flush()
	if !strings.HasSuffix(text.String(), "x  y\nwider  z\n") {
		t.Errorf("ends with %q", text.String()[text.Len()-20:])
	}
}

func TestRecordLineTakesEitherPayload(t *testing.T) {
	for _, record := range []*runlogv1.EventRecord{
		{PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(`{ "b" : 1.0 }`)}},
		{},
	} {
		before := record.GetPayloadForm()
		line, err := RecordLine(record)
		if err != nil || strings.Contains(string(line), `"payload":{ "b" : 1.0 }`) != (before != nil) || record.GetPayloadForm() != before {
			t.Errorf("%s, %v", line, err)
		}
	}
	for _, payload := range []string{"{\n\"b\" : 1.0 }", "{\r}", " {}", "{} "} {
		broad := &runlogv1.EventRecord{PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(payload)}}
		want := `"payloadJson":"` + base64.StdEncoding.EncodeToString([]byte(payload)) + `"}`
		if line, err := RecordLine(broad); err != nil || !strings.HasSuffix(string(line), want) || strings.Contains(string(line), "\n") {
			t.Errorf("the payload %q: %s, %v", payload, line, err)
		}
	}
	broken := &runlogv1.EventRecord{PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(`{`)}}
	if line, err := RecordLine(broken); err == nil {
		t.Errorf("a broken payload became %s", line)
	}
}

// TestAuthorSEC8: two tokens of one name look different in a table, and a caller without a token
// has its name alone.
func TestAuthorSEC8(t *testing.T) {
	ci, other, token := "token:ci", "cert:CN=ci", "0198c0de-0000-7000-8000-00008f3a09c1"
	for want, record := range map[string]*runlogv1.EventRecord{
		"":                  {},
		"cert:CN=ci":        {AppendedBy: &other},
		"token:ci#8f3a09c1": {AppendedBy: &ci, AppendedByTokenId: &token},
	} {
		if got := Author(record); got != want {
			t.Errorf("%v is by %q, want %q", record, got, want)
		}
	}
}

func TestProgress(t *testing.T) {
	var screen bytes.Buffer
	start := at(0).AsTime()
	bar := &Progress{w: &screen, width: 80, total: 1000, started: start}
	bar.Draw(start.Add(ProgressDelay-1), 100, 10)
	bar.Clear()
	if screen.Len() > 0 {
		t.Errorf("short work drew %q", screen.String())
	}
	bar.Draw(start.Add(2*time.Second), 500, 3000)
	bar.Clear()
	bar.Clear()
	if want := "\r 50% [============            ] 3,000 events  1,500/s\x1b[K\r\x1b[K"; screen.String() != want {
		t.Errorf("drew %q, want %q", screen.String(), want)
	}
	screen.Reset()
	unknown := &Progress{w: &screen, width: 12, started: start}
	unknown.Draw(start.Add(2*time.Second), 500, 3000)
	if want := "\r3,000 even…\x1b[K"; screen.String() != want {
		t.Errorf("drew %q, want %q", screen.String(), want)
	}
	var none *Progress
	none.Draw(start.Add(time.Hour), 1, 1)
	none.Clear()
}

func at(seconds float64) *timestamppb.Timestamp {
	began := time.Date(2026, 2, 11, 10, 30, 0, 0, time.UTC)
	return timestamppb.New(began.Add(time.Duration(seconds * float64(time.Second))))
}
