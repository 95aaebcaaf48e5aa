package client

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestQueryEventsPagesREAD3: pages come one after the other, each asked for with the token of the
// one before.
func TestQueryEventsPagesREAD3(t *testing.T) {
	fake := &fakeServer{queryEvents: func(req *runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error) {
		n, _ := strconv.Atoi(req.GetPageToken())
		res := &runlogv1.QueryEventsResponse{Count: uint64(n + 1)}
		if n != 1 { // a page without events is not the last
			res.Events = []*runlogv1.EventRecord{{RunSeq: uint64(n)}}
		}
		if n < 3 {
			res.NextPageToken = strconv.Itoa(n + 1)
		}
		return res, nil
	}}
	c := dialFake(t, fake, Options{})
	for most, want := range map[int][]uint64{9: {1, 2, 3, 4}, 2: {1, 2}} {
		var counts []uint64
		for page, err := range c.QueryEvents(t.Context(), &runlogv1.QueryEventsRequest{TenantId: "t"}) {
			if err != nil {
				t.Fatal(err)
			}
			if counts = append(counts, page.GetCount()); len(counts) == most {
				break
			}
		}
		if !slices.Equal(counts, want) {
			t.Errorf("pages up to %v, want %v", counts, want)
		}
	}
}

// exporter sends events from the one behind the token on, and fails as it is told.
type exporter struct {
	events int
	fail   func(stream, sent int) error // before each message; nil: go on
	tokens []string                     // with which streams were begun
	mute   bool                         // messages have no token
}

func (e *exporter) export(req *runlogv1.ExportEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ExportEventsResponse]) error {
	e.tokens = append(e.tokens, req.GetPageToken())
	from, _ := strconv.Atoi(req.GetPageToken())
	for n := from; n < e.events; n++ {
		if err := e.fail(len(e.tokens), n-from); err != nil {
			return err
		}
		res := &runlogv1.ExportEventsResponse{Events: []*runlogv1.EventRecord{{RunSeq: uint64(n + 1)}}, ResumeToken: strconv.Itoa(n + 1)}
		if e.mute {
			res.ResumeToken = ""
		}
		if err := stream.Send(res); err != nil {
			return err
		}
	}
	if err := e.fail(len(e.tokens), e.events-from); err != nil {
		return err
	}
	return stream.Send(&runlogv1.ExportEventsResponse{Summary: &runlogv1.ExportSummary{Count: uint64(e.events)}})
}

var errEnded = errors.New("the stream is to end in good order")

func (e *exporter) serve(req *runlogv1.ExportEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ExportEventsResponse]) error {
	if err := e.export(req, stream); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// TestExportGoesOnREAD3: an export goes on behind its last message however its streams end, at
// other nodes too, and has each event once.
func TestExportGoesOnREAD3(t *testing.T) {
	lost := status.Error(codes.Unavailable, "connection reset")
	for name, test := range map[string]struct {
		every   int // a stream fails behind so many messages
		failure error
	}{
		"nothing fails":             {100, nil},
		"lost":                      {3, lost},
		"lost at every message":     {1, lost},
		"leader gone":               {2, refusal(codes.Unavailable, "NO_LEADER", "", nil)},
		"overloaded":                {2, refusal(codes.ResourceExhausted, "OVERLOADED", "", nil, retryAfter(time.Second))},
		"too slow":                  {4, refusal(codes.Aborted, "SLOW_CONSUMER", "", nil)},
		"ended without the summary": {5, errEnded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &exporter{events: 20, fail: func(_, sent int) error {
					if sent == test.every {
						return test.failure
					}
					return nil
				}}
				fakes := map[string]*fakeServer{"a": {exportEvents: e.serve}, "b": {exportEvents: e.serve}}
				c := dialFakes(t, Options{MaxAttempts: 2}, "a,b", fakes)
				var seqs []uint64
				var summary *runlogv1.ExportSummary
				for res, err := range c.ExportEvents(t.Context(), &runlogv1.ExportEventsRequest{}) {
					if err != nil {
						t.Fatal(err)
					}
					for _, event := range res.GetEvents() {
						seqs = append(seqs, event.GetRunSeq())
					}
					summary = res.GetSummary()
				}
				for i, seq := range seqs {
					if seq != uint64(i+1) {
						t.Fatalf("event %d comes at %d: %v", seq, i, seqs)
					}
				}
				if len(seqs) != 20 || summary.GetCount() != 20 {
					t.Fatalf("%d events, summary %v", len(seqs), summary)
				}
			})
		})
	}
}

// TestExportEnds: an export that does not get on ends after a bounded number of tries, one that is
// refused at once, and one whose place is not known rather than to repeat events.
func TestExportEnds(t *testing.T) {
	lost := status.Error(codes.Unavailable, "connection reset")
	for name, test := range map[string]struct {
		e       exporter
		token   string
		streams int
	}{
		"nothing comes":      {exporter{fail: func(int, int) error { return lost }}, "", 4},
		"nothing new comes":  {exporter{events: 9, mute: true, fail: func(_, sent int) error { return lost }}, "", 4},
		"refused":            {exporter{fail: func(int, int) error { return refusal(codes.InvalidArgument, "RESUME_TOKEN_INVALID", "", nil) }}, "x", 1},
		"the place is lost":  {exporter{events: 9, mute: true, fail: func(_, sent int) error { return map[bool]error{true: lost}[sent == 2] }}, "", 1},
		"five, then nothing": {exporter{events: 9, fail: func(stream, sent int) error { return map[bool]error{true: lost}[stream > 1 || sent == 5] }}, "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dialFake(t, &fakeServer{exportEvents: test.e.serve}, Options{MaxAttempts: 4})
				var failure error
				for _, err := range c.ExportEvents(t.Context(), &runlogv1.ExportEventsRequest{PageToken: test.token}) {
					failure = err
				}
				if _, ok := errors.AsType[*Error](failure); !ok || len(test.e.tokens) != test.streams {
					t.Fatalf("%v after %d streams, want %d", failure, len(test.e.tokens), test.streams)
				}
			})
		})
	}
}

// TestExportOfSameMessagesEnds: messages that repeat what is known do not keep an export alive.
func TestExportOfSameMessagesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := 0
		fake := &fakeServer{exportEvents: func(_ *runlogv1.ExportEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ExportEventsResponse]) error {
			streams++
			return stream.Send(&runlogv1.ExportEventsResponse{ResumeToken: "same"})
		}}
		c := dialFake(t, fake, Options{MaxAttempts: 3})
		var failure error
		for _, err := range c.ExportEvents(t.Context(), &runlogv1.ExportEventsRequest{}) {
			failure = err
		}
		// The first stream moves on, from no token to one.
		if failure == nil || streams != 3 {
			t.Fatal(fmt.Sprint(failure, streams))
		}
	})
}
