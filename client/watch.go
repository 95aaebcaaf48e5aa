package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// watchSilence is three missed heartbeats (WATCH-4): the connection is dead, whatever TCP says.
const watchSilence = 45 * time.Second

// WatchRun yields what the server tells about a run, catch-up first, then live (WATCH-1), heartbeats
// included, until the context ends or the caller leaves. It reconnects by itself with the last resume
// token; watermarks never go back (WATCH-3), whichever node answers. An error ends the iteration.
func (c *Client) WatchRun(ctx context.Context, req *runlogv1.WatchRunRequest) iter.Seq2[*runlogv1.WatchRunResponse, error] {
	return func(yield func(*runlogv1.WatchRunResponse, error) bool) {
		w := watch{req: proto.CloneOf(req), tries: retrier{client: c}, yield: yield}
		for {
			failure := receive(ctx, watchSilence, bind(c.projections.WatchRun, w.req), w.take)
			if w.left {
				return
			}
			if err := w.resume(ctx, failure); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// watch is the state that outlives one stream of a watch.
type watch struct {
	req     *runlogv1.WatchRunRequest // of the next stream
	last    uint64                    // newest watermark handed out
	learned bool                      // req.ResumeToken came from the server
	left    bool                      // the caller left the loop
	tries   retrier
	yield   func(*runlogv1.WatchRunResponse, error) bool
}

// take hands one message on and returns false when the caller leaves.
func (w *watch) take(res *runlogv1.WatchRunResponse) bool {
	w.tries.answered()
	if token := res.GetResumeToken(); token != "" {
		w.req.ResumeToken, w.learned = token, true
	}
	if mark := watermarkOf(res); mark != nil {
		if mark.GetLastEventSeq() < w.last {
			return true // a node that is behind the one before; it will catch up
		}
		w.last = mark.GetLastEventSeq()
		w.req.AfterSeq = max(w.req.AfterSeq, w.last)
	}
	w.left = !w.yield(res, nil)
	return !w.left
}

// watermarkOf returns the watermark that a message carries, or nil.
func watermarkOf(res *runlogv1.WatchRunResponse) *runlogv1.Watermark {
	if beat := res.GetHeartbeat(); beat != nil {
		return beat.GetWatermark()
	}
	return res.GetWatermark()
}

// resume waits before the next stream and returns nil, or returns the error that ends the watch.
// failure is nil when the server ended the stream in good order, as it does when it shuts down.
func (w *watch) resume(ctx context.Context, failure *Error) error {
	switch {
	case failure == nil:
		failure = &Error{Code: codes.Unavailable, Message: "the server ended the watch"}
		if ctx.Err() != nil {
			failure.causes = []error{ctx.Err()}
		}
	case failure.Reason == reasonResumeTokenInvalid && w.learned:
		// Watermarks tell the present, not the past: going on from the newest one loses nothing.
		w.req.ResumeToken, w.learned = "", false
		return nil
	}
	return w.tries.again(ctx, failure)
}
