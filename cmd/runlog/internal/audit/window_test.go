package audit

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

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
