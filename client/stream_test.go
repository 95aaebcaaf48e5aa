package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

func records(from, to uint64) []*runlogv1.EventRecord {
	var out []*runlogv1.EventRecord
	for seq := from; seq <= to; seq++ {
		out = append(out, &runlogv1.EventRecord{RunSeq: seq})
	}
	return out
}

func TestListEventsPages(t *testing.T) {
	fake := &fakeServer{listEvents: func(req *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
		switch req.GetAfterSeq() {
		case 1:
			return &runlogv1.ListEventsResponse{Events: records(2, 4), NextAfterSeq: 4}, nil
		case 4: // a page on which the type filter left nothing
			return &runlogv1.ListEventsResponse{NextAfterSeq: 7}, nil
		default:
			return &runlogv1.ListEventsResponse{Events: records(8, 8)}, nil
		}
	}}
	c := dialFake(t, fake, Options{})
	var got []uint64
	for record, err := range c.ListEvents(t.Context(), &runlogv1.ListEventsRequest{AfterSeq: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, record.GetRunSeq())
	}
	if !slices.Equal(got, []uint64{2, 3, 4, 8}) {
		t.Errorf("got %v", got)
	}
}

func TestListRunsPages(t *testing.T) {
	fake := &fakeServer{listRuns: func(req *runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) {
		if req.GetPageToken() == "" {
			return &runlogv1.ListRunsResponse{Runs: []*runlogv1.Run{{RunId: "b"}}, NextPageToken: "more"}, nil
		}
		return nil, refusal(codes.InvalidArgument, "INVALID_ARGUMENT_FIELD", "page token", nil)
	}}
	c := dialFake(t, fake, Options{})
	var got []string
	for run, err := range c.ListRuns(t.Context(), &runlogv1.ListRunsRequest{}) {
		got = append(got, fmt.Sprint(run.GetRunId(), " ", err))
	}
	if !slices.Equal(got, []string{"b <nil>", " INVALID_ARGUMENT_FIELD: page token"}) {
		t.Errorf("got %q", got)
	}
}

func TestReadEventsResumesBehindTheLastEvent(t *testing.T) {
	for name, test := range map[string]struct {
		limit uint64
		want  []uint64
	}{
		"whole run": {0, []uint64{1, 2, 3, 4, 5}},
		"limited":   {4, []uint64{1, 2, 3, 4}},
		// The server broke off right behind the last event that was wanted: nothing is left to ask
		// for.
		"at the break": {2, []uint64{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeServer{readEvents: func(req *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
					if req.GetAfterSeq() == 0 {
						stream.Send(&runlogv1.ReadEventsResponse{Events: records(1, 2)})
						return status.Error(codes.Unavailable, "restarting")
					}
					last := uint64(5)
					if req.GetLimit() > 0 {
						last = req.GetAfterSeq() + req.GetLimit()
					}
					return stream.Send(&runlogv1.ReadEventsResponse{Events: records(req.GetAfterSeq()+1, last)})
				}}
				c := dialFake(t, fake, Options{})
				var got []uint64
				for record, err := range c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{Limit: test.limit}) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, record.GetRunSeq())
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("got %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestSilentStreamIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeServer{readEvents: func(_ *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
			<-stream.Context().Done()
			return stream.Context().Err()
		}}
		c := dialFake(t, fake, Options{Timeout: 7 * time.Second, MaxAttempts: 1})
		for _, err := range c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{}) {
			var e *Error
			if !errors.As(err, &e) || e.Code != codes.Unavailable || e.Message != "the server sent nothing for 7s" {
				t.Errorf("got %v", err)
			}
		}
	})
}

// TestStreamsTimeOut: if a stream stays broken, it ends once Timeout has passed since the last
// message, however many tries are left. The error is the server's last one.
func TestStreamsTimeOut(t *testing.T) {
	noLeader := refusal(codes.Unavailable, "NO_LEADER", "two nodes are down", nil)
	for name, read := range map[string]func(ctx context.Context, c *Client) (messages int, err error){
		"ReadEvents": func(ctx context.Context, c *Client) (n int, _ error) {
			for _, err := range c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{}) {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		},
		"ExportEvents": func(ctx context.Context, c *Client) (n int, _ error) {
			for _, err := range c.ExportEvents(ctx, &runlogv1.ExportEventsRequest{}) {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const timeout, each, good = 10 * time.Second, 3 * time.Second, 20
				tries := 0
				give := func() bool {
					time.Sleep(each)
					tries++
					// two of three fail, for more than the timeout in all
					return tries%3 == 0 && tries <= 3*good
				}
				var last time.Time
				c := dialFake(t, &fakeServer{
					readEvents: func(_ *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
						if give() {
							last = time.Now()
							_ = stream.Send(&runlogv1.ReadEventsResponse{Events: records(uint64(tries), uint64(tries))})
						}
						return noLeader
					},
					exportEvents: func(_ *runlogv1.ExportEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ExportEventsResponse]) error {
						if give() {
							last = time.Now()
							_ = stream.Send(&runlogv1.ExportEventsResponse{ResumeToken: fmt.Sprint(tries)})
						}
						return noLeader
					},
				}, Options{Timeout: timeout, MaxAttempts: 1000})
				n, err := read(t.Context(), c)
				var e *Error
				if !errors.As(err, &e) || e.Reason != "NO_LEADER" || n != good {
					t.Errorf("%d messages, %v", n, err)
				}
				if took := time.Since(last); took > timeout+2*each {
					t.Errorf("it was tried for %v after the last message", took)
				}
			})
		})
	}
}

func mark(seq uint64, token string) *runlogv1.WatchRunResponse {
	return &runlogv1.WatchRunResponse{
		Kind:        &runlogv1.WatchRunResponse_Watermark{Watermark: &runlogv1.Watermark{LastEventSeq: seq}},
		ResumeToken: token,
	}
}

// TestWatchResumes proves the client's half of WATCH-1 (no seam) and WATCH-3 (never back).
func TestWatchResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		fake := &fakeServer{watchRun: func(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
			asked = append(asked, fmt.Sprintf("%d %q", req.GetAfterSeq(), req.GetResumeToken()))
			switch len(asked) {
			case 1:
				stream.Send(mark(4, "t4"))
				return status.Error(codes.Unavailable, "gone")
			case 2: // another node, a little behind; then it shuts down in good order
				stream.Send(mark(3, "t3"))
				stream.Send(mark(5, "t5"))
				return nil
			case 3:
				return refusal(codes.Aborted, "SLOW_CONSUMER", "too slow", nil)
			case 4:
				return refusal(codes.InvalidArgument, "RESUME_TOKEN_INVALID", "unknown token", nil)
			case 5: // silence, until the watchdog ends it
				stream.Send(mark(6, "t6"))
				<-stream.Context().Done()
				return nil
			default:
				return stream.Send(mark(9, "t9"))
			}
		}}
		c := dialFake(t, fake, Options{})
		var got []uint64
		for res, err := range c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{AfterSeq: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, res.GetWatermark().GetLastEventSeq())
			if len(got) == 4 {
				break
			}
		}
		if !slices.Equal(got, []uint64{4, 5, 6, 9}) {
			t.Errorf("watermarks %v", got)
		}
		want := []string{`1 ""`, `4 "t4"`, `5 "t5"`, `5 "t5"`, `5 ""`, `6 "t6"`}
		if !slices.Equal(asked, want) {
			t.Errorf("asked for %v, want %v", asked, want)
		}
	})
}

func TestWatchEnds(t *testing.T) {
	for name, test := range map[string]struct {
		token string
		err   error
	}{
		"unknown run":            {err: refusal(codes.NotFound, "RUN_NOT_FOUND", "no such run", nil)},
		"the caller's bad token": {token: "stale", err: refusal(codes.InvalidArgument, "RESUME_TOKEN_INVALID", "unknown token", nil)},
		"down for good":          {err: status.Error(codes.Unavailable, "gone")},
		"ended at once, always":  {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeServer{watchRun: func(*runlogv1.WatchRunRequest, grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
					return test.err
				}}
				c := dialFake(t, fake, Options{MaxAttempts: 5})
				want := codes.Unavailable
				if test.err != nil {
					want = status.Code(test.err)
				}
				turns := 0
				for _, err := range c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{ResumeToken: test.token}) {
					turns++
					var e *Error
					if !errors.As(err, &e) || e.Code != want {
						t.Errorf("got %v, want %v", err, want)
					}
				}
				if turns != 1 {
					t.Errorf("%d turns, want one", turns)
				}
			})
		})
	}
}

// TestWatchEventsResumes: no event comes twice, whatever a token stands for, and a heartbeat, which
// tells of the snapshot, is not taken for events.
func TestWatchEventsResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		batch := func(from, to uint64, token string) *runlogv1.WatchRunResponse {
			return &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Events{
				Events: &runlogv1.EventBatch{Events: records(from, to)}}, ResumeToken: token}
		}
		fake := &fakeServer{watchRun: func(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
			asked = append(asked, fmt.Sprintf("%d %q", req.GetAfterSeq(), req.GetResumeToken()))
			switch len(asked) {
			case 1:
				stream.Send(batch(1, 3, "t3"))
				stream.Send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Heartbeat{
					Heartbeat: &runlogv1.Heartbeat{Watermark: &runlogv1.Watermark{LastEventSeq: 9}}}, ResumeToken: "t3"})
				return refusal(codes.Aborted, "SLOW_CONSUMER", "too slow", nil)
			case 2:
				return refusal(codes.InvalidArgument, "RESUME_TOKEN_INVALID", "unknown token", nil)
			default:
				stream.Send(batch(2, 3, "t3"))
				return stream.Send(batch(3, 5, "t5"))
			}
		}}
		c := dialFake(t, fake, Options{})
		var got []uint64
		for res, err := range c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{View: runlogv1.WatchView_EVENT}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range res.GetEvents().GetEvents() {
				got = append(got, e.GetRunSeq())
			}
			if len(got) == 5 {
				break
			}
		}
		if !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) {
			t.Errorf("events %v", got)
		}
		if want := []string{`0 ""`, `3 "t3"`, `3 ""`}; !slices.Equal(asked, want) {
			t.Errorf("asked for %v, want %v", asked, want)
		}
	})
}

// TestWatchRunsResumes with the newest token (WATCH-2), and ends when that is refused.
func TestWatchRunsResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		fake := &fakeServer{watchRuns: func(req *runlogv1.WatchRunsRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunsResponse]) error {
			asked = append(asked, req.GetTenantId()+" "+req.GetResumeToken())
			if len(asked) == 3 {
				return refusal(codes.InvalidArgument, "RESUME_TOKEN_INVALID", "too old", nil)
			}
			stream.Send(&runlogv1.WatchRunsResponse{Kind: &runlogv1.WatchRunsResponse_Watermark{
				Watermark: &runlogv1.Watermark{RunId: "r", LastEventSeq: uint64(len(asked))}}, ResumeToken: fmt.Sprint("t", len(asked))})
			if len(asked) == 2 {
				return status.Error(codes.Unavailable, "gone")
			}
			return nil
		}}
		c := dialFake(t, fake, Options{})
		var got []string
		for res, err := range c.WatchRuns(t.Context(), &runlogv1.WatchRunsRequest{TenantId: "acme"}) {
			got = append(got, fmt.Sprint(res.GetWatermark().GetLastEventSeq(), " ", err))
		}
		if !slices.Equal(got, []string{"1 <nil>", "2 <nil>", "0 RESUME_TOKEN_INVALID: too old"}) {
			t.Errorf("got %q", got)
		}
		if want := []string{"acme ", "acme t1", "acme t2"}; !slices.Equal(asked, want) {
			t.Errorf("asked for %q, want %q", asked, want)
		}
	})
}
