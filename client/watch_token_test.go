package client

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestWatchOfAnUnknownPlace (WATCH-3): a caller's token does not say after which event it is. If
// the token that came with a heartbeat is refused before any event came, the watch must not begin
// again with events that the caller has had.
func TestWatchOfAnUnknownPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := 0
		fake := &fakeServer{watchRun: func(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
			switch streams++; streams {
			case 1: // a heartbeat
				stream.Send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Heartbeat{
					Heartbeat: &runlogv1.Heartbeat{Watermark: &runlogv1.Watermark{LastEventSeq: 500}}}, ResumeToken: "later"})
				return status.Error(codes.Unavailable, "gone")
			case 2:
				return refusal(codes.InvalidArgument, "RESUME_TOKEN_INVALID", "unknown token", nil)
			default:
				return stream.Send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Events{
					Events: &runlogv1.EventBatch{Events: records(req.GetAfterSeq()+1, 500)}}, ResumeToken: "t500"})
			}
		}}
		c := dialFake(t, fake, Options{})
		for res, err := range c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{View: runlogv1.WatchView_EVENT, ResumeToken: "t500"}) {
			if events := res.GetEvents().GetEvents(); len(events) > 0 {
				t.Errorf("got events again, from %d on", events[0].GetRunSeq())
				break
			}
			var e *Error
			if err != nil && (!errors.As(err, &e) || e.Reason != ReasonResumeTokenInvalid) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// TestWatchAfterARestoreREAD7: a cluster that was restored refuses the token, and its run has other
// events behind the same runSeq. A watch of watermarks begins again with what the run has now. One
// of events ends, so that the caller reads the run again, and does not take the new events for the
// ones that follow.
func TestWatchAfterARestoreREAD7(t *testing.T) {
	for view, want := range map[runlogv1.WatchView_Kind]string{
		runlogv1.WatchView_WATERMARK: "mark 7, mark 3, RUN_NOT_FOUND, ", runlogv1.WatchView_EVENT: "events 7, RESUME_TOKEN_INVALID, ",
	} {
		t.Run(view.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				fake := &fakeServer{watchRun: func(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
					asked = append(asked, fmt.Sprintf("%d %q", req.GetAfterSeq(), req.GetResumeToken()))
					switch {
					case req.GetResumeToken() != "":
						return refusal(codes.InvalidArgument, "RESUME_TOKEN_INVALID", "restored", map[string]string{"incarnation": "a", "current": "b"})
					case len(asked) > 3:
						return refusal(codes.NotFound, "RUN_NOT_FOUND", "enough", nil)
					case len(asked) > 1:
						stream.Send(mark(3, ""))
					case view == runlogv1.WatchView_EVENT:
						stream.Send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Events{
							Events: &runlogv1.EventBatch{Events: records(7, 7)}}, ResumeToken: "a-t7"})
					default:
						stream.Send(mark(7, "a-t7"))
					}
					return status.Error(codes.Unavailable, "gone")
				}}
				c := dialFake(t, fake, Options{})
				got := ""
				for res, err := range c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{View: view, AfterSeq: 6}) {
					var e *Error
					switch {
					case errors.As(err, &e):
						got += string(e.Reason) + ", "
					case res.GetEvents() != nil:
						got += fmt.Sprint("events ", res.GetEvents().GetEvents()[0].GetRunSeq(), ", ")
					default:
						got += fmt.Sprint("mark ", lastSeq(res), ", ")
					}
				}
				if got != want {
					t.Errorf("view %v: got %s want %s; asked %v", view, got, want, asked)
				}
			})
		})
	}
}
