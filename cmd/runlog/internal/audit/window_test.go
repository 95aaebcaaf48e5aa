package audit

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"runlog/cmd/runlog/internal/output"
	"runlog/cmd/runlog/internal/session"
	runlogv1 "runlog/proto/runlog/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// TestMoment: times are RFC 3339, dates, or so long before now.
func TestMoment(t *testing.T) {
	now := time.Date(2026, 2, 11, 10, 30, 0, 5, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-02-11T10:30:00Z":                now.Add(-5),
		"2026-02-11T10:30:00.000000005Z":      now,
		"2026-02-11T11:30:00.000000005+01:00": now,
		"2026-02-11":                          time.Date(2026, 2, 11, 0, 0, 0, 0, time.UTC),
		"now":                                 now,
		"-0s":                                 now,
		"-90m":                                now.Add(-90 * time.Minute),
		"-24h":                                now.Add(-24 * time.Hour),
		"-7d":                                 now.AddDate(0, 0, -7),
		"-1w2d3h4m5s":                         now.Add(-(9*24+3)*time.Hour - 4*time.Minute - 5*time.Second),
	} {
		got, err := moment("--from", text, now)
		if err != nil || !got.AsTime().Equal(want) {
			t.Errorf("%s is %v, %v; want %v", text, got.AsTime(), err, want)
		}
	}
	for _, text := range []string{
		"", "-", "-h", "-5", "-5x", "-5h5", "+5h", "24h", "yesterday", "2026-02-30", "2026-02-11T10:30:00", "2026-02-11 10:30:00Z", "-99999999999h", "-2000000000w", "--5h", "-1.5h", "1969-12-31", "2262-04-12", "-3000w",
	} {
		if at, err := moment("--from", text, now); err == nil {
			t.Errorf("%q is taken for %v", text, at.AsTime())
		}
	}
}

// TestWindowProgress: the bar shows how much of the window was read, also of one from the
// beginning.
func TestWindowProgress(t *testing.T) {
	at := func(hour int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 2, 11, hour, 0, 0, 0, time.UTC))
	}
	for name, from := range map[string]*timestamppb.Timestamp{"from a moment": at(0), "from the beginning": nil} {
		var out bytes.Buffer
		a := &app{&session.Session{Output: output.Output{Stderr: &out, StderrWidth: 100}}}
		p := a.windowProgress(&runlogv1.QueryEventsResponse{From: from, To: at(10)})
		p.reached(p.Started(), at(0), 1)
		p.reached(p.Started().Add(2*time.Second), at(5), 3000)
		if !strings.Contains(out.String(), " 50% [") || !strings.Contains(out.String(), "3,000 events  1,500/s") {
			t.Errorf("%s: %q", name, out.String())
		}
		p.clear()
	}
	var none *windowProgress
	none.reached(time.Now(), nil, 1)
	none.clear()
}
