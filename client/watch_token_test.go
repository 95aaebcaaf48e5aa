package client

import (
	"errors"
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
