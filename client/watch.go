package client

import (
	"context"
	"iter"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// watchSilence is three missed heartbeats (WATCH-4): the connection is dead, whatever TCP says.
const watchSilence = 45 * time.Second

// WatchRun yields what the server tells about a run, catch-up first, then live (WATCH-1), heartbeats
// included, until the context ends or the caller leaves. It reconnects by itself with the last resume
// token, also when it was too slow for events; watermarks and snapshots never go back and no event comes
// twice (WATCH-3), whichever node answers. An error ends the iteration.
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
	last    uint64                    // newest runSeq handed out
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
	switch kind := res.GetKind().(type) {
	case *runlogv1.WatchRunResponse_Events:
		if !w.events(kind.Events) {
			return true
		}
	case *runlogv1.WatchRunResponse_Watermark, *runlogv1.WatchRunResponse_Snapshot, *runlogv1.WatchRunResponse_Heartbeat:
		if w.req.GetView() == runlogv1.WatchView_EVENT {
			break // a heartbeat tells how far the snapshot is, not the events
		}
		if lastSeq(res) < w.last {
			return true // a node that is behind the one before; it will catch up
		}
		w.reached(lastSeq(res))
	}
	w.left = !w.yield(res, nil)
	return !w.left
}

func (w *watch) reached(seq uint64) {
	w.last = seq
	w.req.AfterSeq = max(w.req.AfterSeq, seq)
}

// events drops those that the caller has, and tells whether any are left.
func (w *watch) events(batch *runlogv1.EventBatch) bool {
	batch.Events = slices.DeleteFunc(batch.GetEvents(), func(e *runlogv1.EventRecord) bool { return e.GetRunSeq() <= w.last })
	n := len(batch.GetEvents())
	if n > 0 {
		w.reached(batch.GetEvents()[n-1].GetRunSeq())
	}
	return n > 0
}

// lastSeq returns how far the run is by a message.
func lastSeq(res *runlogv1.WatchRunResponse) uint64 {
	switch {
	case res.GetHeartbeat() != nil:
		return res.GetHeartbeat().GetWatermark().GetLastEventSeq()
	case res.GetSnapshot() != nil:
		return res.GetSnapshot().GetLastEventSeq()
	default:
		return res.GetWatermark().GetLastEventSeq()
	}
}

// resume waits before the next stream and returns nil, or returns the error that ends the watch.
// failure is nil when the server ended the stream in good order, as it does when it shuts down.
func (w *watch) resume(ctx context.Context, failure *Error) error {
	switch {
	case failure == nil:
		failure = ended(ctx)
	case failure.Reason == reasonResumeTokenInvalid && w.learned:
		// What a token stands for is a runSeq: going on behind the newest one loses nothing.
		w.req.ResumeToken, w.learned = "", false
		return nil
	}
	return w.tries.again(ctx, failure)
}

// ended is a watch that the server ended in good order.
func ended(ctx context.Context) *Error {
	e := &Error{Code: codes.Unavailable, Message: "the server ended the watch"}
	if ctx.Err() != nil {
		e.causes = []error{ctx.Err()}
	}
	return e
}

// WatchRuns yields what the server tells about the runs that a request names, in commit order (WATCH-2), until the
// context ends or the caller leaves. It reconnects by itself with the last resume token. An error ends the iteration;
// after RESUME_TOKEN_INVALID the caller has been away for too long, and begins anew with IncludeExisting.
func (c *Client) WatchRuns(ctx context.Context, req *runlogv1.WatchRunsRequest) iter.Seq2[*runlogv1.WatchRunsResponse, error] {
	return func(yield func(*runlogv1.WatchRunsResponse, error) bool) {
		req, tries, left := proto.CloneOf(req), retrier{client: c}, false
		take := func(res *runlogv1.WatchRunsResponse) bool {
			tries.answered()
			if token := res.GetResumeToken(); token != "" {
				req.ResumeToken = token
			}
			left = !yield(res, nil)
			return !left
		}
		for {
			failure := receive(ctx, watchSilence, bind(c.projections.WatchRuns, req), take)
			if left {
				return
			}
			if failure == nil {
				failure = ended(ctx)
			}
			if err := tries.again(ctx, failure); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
