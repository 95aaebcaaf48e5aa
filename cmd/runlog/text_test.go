package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

func TestText(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{number(0), "0"},
		{number(999), "999"},
		{number(1000), "1,000"},
		{number(uint64(18446744073709551615)), "18,446,744,073,709,551,615"},
		{plural(1, "event"), "1 event"},
		{plural(1200, "event"), "1,200 events"},
		{cut("straße", 6), "straße"},
		{cut("straße", 5), "stra…"},
		{cut("anything", 0), "anything"},
		{oneLine("a\nb\tc\x1b[31m\u202e\u0085é"), "a b c\ufffd[31m\ufffd\ufffdé"},
		{stamp(nil), ""},
		{stamp(seconds(0.0004)), "2026-02-11T10:30:00.000Z"},
		{elapsed(seconds(1), seconds(2.5)), "1.5s"},
		{elapsed(seconds(1), nil), ""},
		{innermost(`connection error: desc = "transport: dial tcp 1.2.3.4:5: connect: connection refused"`), "connection refused"},
		{innermost("plain"), "plain"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestExplainNamesEveryFault(t *testing.T) {
	code, text := new(app).explain(hinted{errors.Join(usageError("one"), usageError("two")), "mend them"})
	if code != exitUsage || text != "one; two; mend them" {
		t.Errorf("%d, %q", code, text)
	}
}

func TestTableStreamsBeyondItsSample(t *testing.T) {
	var text bytes.Buffer
	out := bufio.NewWriter(&text)
	rows := newTable(out, 0, "A", "B")
	for range tableSample {
		rows.row("x", "y")
	}
	out.Flush()
	if lines := strings.Count(text.String(), "\n"); lines != tableSample+1 {
		t.Errorf("%d lines before the end, want the head and the sample", lines)
	}
	rows.row("wider", "z")
	rows.end()
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
		line, err := recordLine(record)
		if err != nil || strings.Contains(string(line), `"payload":{ "b" : 1.0 }`) != (before != nil) || record.GetPayloadForm() != before {
			t.Errorf("%s, %v", line, err)
		}
	}
	for _, payload := range []string{"{\n\"b\" : 1.0 }", "{\r}", " {}", "{} "} {
		broad := &runlogv1.EventRecord{PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(payload)}}
		want := `"payloadJson":"` + base64.StdEncoding.EncodeToString([]byte(payload)) + `"}`
		if line, err := recordLine(broad); err != nil || !strings.HasSuffix(string(line), want) || strings.Contains(string(line), "\n") {
			t.Errorf("the payload %q: %s, %v", payload, line, err)
		}
	}
	broken := &runlogv1.EventRecord{PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(`{`)}}
	if line, err := recordLine(broken); err == nil {
		t.Errorf("a broken payload became %s", line)
	}
}

func TestProgress(t *testing.T) {
	var screen bytes.Buffer
	start := seconds(0).AsTime()
	bar := &progress{w: &screen, width: 80, total: 1000, started: start}
	bar.draw(start.Add(progressDelay-1), 100, 10)
	bar.clear()
	if screen.Len() > 0 {
		t.Errorf("short work drew %q", screen.String())
	}
	bar.draw(start.Add(2*time.Second), 500, 3000)
	bar.clear()
	bar.clear()
	if want := "\r 50% [============            ] 3,000 events  1,500/s\x1b[K\r\x1b[K"; screen.String() != want {
		t.Errorf("drew %q, want %q", screen.String(), want)
	}
	screen.Reset()
	unknown := &progress{w: &screen, width: 12, started: start}
	unknown.draw(start.Add(2*time.Second), 500, 3000)
	if want := "\r3,000 even…\x1b[K"; screen.String() != want {
		t.Errorf("drew %q, want %q", screen.String(), want)
	}
	var none *progress
	none.draw(start.Add(time.Hour), 1, 1)
	none.clear()
}
