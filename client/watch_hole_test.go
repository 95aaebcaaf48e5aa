package client

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestHolesAmongEventsWATCH5: behind a hole the client reads again what the run has, tells it once,
// and says when the run is STALE and when it no longer is.
func TestHolesAmongEventsWATCH5(t *testing.T) {
	inRun := slices.Concat(records(1, 3), records(6, 9), records(12, 12))
	for name, test := range map[string]struct {
		req  *runlogv1.WatchRunRequest
		sent [][]*runlogv1.EventRecord
		want []string
	}{
		"a hole between two messages": {
			req:  &runlogv1.WatchRunRequest{},
			sent: [][]*runlogv1.EventRecord{records(1, 3), records(6, 7), records(8, 9)},
			want: []string{"1-3", "stale 3", "6-9", "snapshot 9"},
		},
		"inside one, and what the stream had left out is told": {
			req:  &runlogv1.WatchRunRequest{},
			sent: [][]*runlogv1.EventRecord{append(records(1, 2), records(6, 8)...), records(9, 9)},
			want: []string{"1-2", "stale 2", "3-3 6-9", "snapshot 9"},
		},
		"at the begin": {
			req:  &runlogv1.WatchRunRequest{AfterSeq: 3},
			sent: [][]*runlogv1.EventRecord{records(6, 9)},
			want: []string{"stale 3", "6-9", "snapshot 9"},
		},
		"two of them": {
			req:  &runlogv1.WatchRunRequest{},
			sent: [][]*runlogv1.EventRecord{records(1, 3), records(6, 6), records(7, 9), records(12, 12)},
			want: []string{"1-3", "stale 3", "6-9", "snapshot 9", "stale 9", "12-12", "snapshot 12"},
		},
		"none behind a token, which does not tell where it is": {
			req:  &runlogv1.WatchRunRequest{ResumeToken: "token"},
			sent: [][]*runlogv1.EventRecord{records(6, 9)},
			want: []string{"6-9"},
		},
		"one behind a token": {
			req:  &runlogv1.WatchRunRequest{ResumeToken: "token"},
			sent: [][]*runlogv1.EventRecord{records(8, 9), records(12, 12)},
			want: []string{"8-9", "stale 9", "12-12", "snapshot 12"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &fakeServer{
				watchRun: func(_ *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
					for _, events := range test.sent {
						if err := stream.Send(&runlogv1.WatchRunResponse{ResumeToken: "t", Kind: &runlogv1.WatchRunResponse_Events{
							Events: &runlogv1.EventBatch{Events: events},
						}}); err != nil {
							return err
						}
					}
					<-stream.Context().Done()
					return nil
				},
				getSnapshot: func(req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
					// The snapshot is further than what is asked for.
					at := max(req.GetMinSeq(), 9)
					return &runlogv1.GetSnapshotResponse{Snapshot: &runlogv1.RunSnapshot{LastEventSeq: at}}, nil
				},
				readEvents: func(req *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
					after := slices.IndexFunc(inRun, func(e *runlogv1.EventRecord) bool { return e.GetRunSeq() > req.GetAfterSeq() })
					return stream.Send(&runlogv1.ReadEventsResponse{Events: inRun[after:]})
				},
			}
			req := test.req
			req.RunId, req.View = "run", runlogv1.WatchView_EVENT
			var got []string
			for res, err := range dialFake(t, fake, Options{}).WatchRun(t.Context(), req) {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, told(res)); len(got) == len(test.want) {
					break
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// told shows a message, the events in it as ranges of runSeq.
func told(res *runlogv1.WatchRunResponse) (text string) {
	if s := res.GetSnapshot(); s != nil {
		return fmt.Sprint("snapshot ", s.GetLastEventSeq())
	}
	if m := res.GetWatermark(); m != nil {
		return fmt.Sprint(map[bool]string{true: "stale ", false: "watermark "}[m.GetStale()], m.GetLastEventSeq())
	}
	var from, last uint64
	for _, e := range res.GetEvents().GetEvents() {
		if from > 0 && e.GetRunSeq() != last+1 {
			text += fmt.Sprintf("%d-%d ", from, last)
			from = 0
		}
		if from == 0 {
			from = e.GetRunSeq()
		}
		last = e.GetRunSeq()
	}
	return text + fmt.Sprintf("%d-%d", from, last)
}

// TestNoHoleWATCH5: events that follow each other, also across streams, are told as they come.
func TestNoHoleWATCH5(t *testing.T) {
	streams := 0
	fake := &fakeServer{watchRun: func(_ *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
		streams++
		sent := [][]*runlogv1.EventRecord{records(1, 2), records(3, 3)}
		if streams == 2 {
			// what it has already comes again
			sent = [][]*runlogv1.EventRecord{records(2, 4), records(5, 5)}
		}
		for _, events := range sent {
			if err := stream.Send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Events{Events: &runlogv1.EventBatch{Events: events}}}); err != nil {
				return err
			}
		}
		if streams == 2 {
			<-stream.Context().Done()
		}
		return nil
	}}
	var got []string
	for res, err := range dialFake(t, fake, Options{}).WatchRun(t.Context(), &runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_EVENT}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, told(res)); len(got) == 4 {
			break
		}
	}
	if want := []string{"1-2", "3-3", "4-4", "5-5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTokensAroundAHoleWATCH5: a watcher that leaves after any message and resumes with its token
// misses nothing.
func TestTokensAroundAHoleWATCH5(t *testing.T) {
	inRun := slices.Concat(records(1, 3), records(6, 9), records(12, 12))
	after := func(seq uint64) []*runlogv1.EventRecord {
		var list []*runlogv1.EventRecord
		for _, e := range inRun {
			if e.GetRunSeq() > seq {
				list = append(list, &runlogv1.EventRecord{RunSeq: e.GetRunSeq()})
			}
		}
		return list
	}
	fake := &fakeServer{
		watchRun: func(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
			at := req.GetAfterSeq()
			if req.GetResumeToken() != "" {
				if _, err := fmt.Sscan(req.GetResumeToken(), &at); err != nil {
					return err
				}
			}
			for list := after(at); len(list) > 0; {
				n := min(4, len(list))
				if err := stream.Send(&runlogv1.WatchRunResponse{
					ResumeToken: fmt.Sprint(list[n-1].GetRunSeq()),
					Kind:        &runlogv1.WatchRunResponse_Events{Events: &runlogv1.EventBatch{Events: list[:n]}},
				}); err != nil {
					return err
				}
				list = list[n:]
			}
			<-stream.Context().Done()
			return nil
		},
		getSnapshot: func(req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
			return &runlogv1.GetSnapshotResponse{Snapshot: &runlogv1.RunSnapshot{LastEventSeq: req.GetMinSeq()}}, nil
		},
		readEvents: func(req *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
			return stream.Send(&runlogv1.ReadEventsResponse{Events: after(req.GetAfterSeq())})
		},
	}
	c := dialFake(t, fake, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // what is missed never comes
	defer cancel()
	for leave := range 8 {
		got := map[uint64]bool{}
		token := ""
		for stream := 0; len(got) < len(inRun); stream++ {
			if stream == 20 {
				t.Fatalf("leaving at message %d, these came: %v", leave, got)
			}
			messages := 0
			for res, err := range c.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_EVENT, ResumeToken: token}) {
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range res.GetEvents().GetEvents() {
					got[e.GetRunSeq()] = true
				}
				if got[12] && len(got) < len(inRun) {
					t.Fatalf("leaving at message %d, only these came: %v", leave, got)
				}
				token = res.GetResumeToken()
				if messages++; messages > leave+stream || len(got) == len(inRun) {
					break
				}
			}
		}
	}
}
