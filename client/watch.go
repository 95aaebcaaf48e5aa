package client

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// watchSilence is three missed heartbeats (WATCH-4): the connection is dead, whatever TCP reports.
const watchSilence = 45 * time.Second

// WatchRun yields the server's messages about a run, catch-up first, then live (WATCH-1),
// heartbeats included, until the context or the iteration ends. It reconnects with the last resume
// token, also after it was too slow for events. Watermarks and snapshots never go back, and no
// event is repeated (WATCH-3), at any node. It reads all pages of a large snapshot (READ-8). An
// error ends the iteration.
//
// Among events, a runSeq that does not follow the one before is a hole; imported runs have holes.
// The run is then STALE, and the caller gets a watermark with that status. WatchRun reads the
// events after the hole again, up to the run's snapshot, and yields them; then it yields that
// snapshot, and the watch continues after it (WATCH-5).
//
// If the cluster is restored or recovered meanwhile, it is another incarnation, in which a runSeq
// may be that of another event (READ-7). A watch of watermarks or snapshots then begins again with
// the present one, which may be behind the one before. A watch of events ends with
// RESUME_TOKEN_INVALID: the caller reads the run again.
func (c *Client) WatchRun(ctx context.Context, req *runlogv1.WatchRunRequest) iter.Seq2[*runlogv1.WatchRunResponse, error] {
	return func(yield func(*runlogv1.WatchRunResponse, error) bool) {
		w := watch{
			c: c, req: proto.CloneOf(req), placed: req.GetResumeToken() == "",
			token: req.GetResumeToken(), tries: retrier{client: c, token: c.opts.token()}, yield: yield,
		}
		if req.GetView() == runlogv1.WatchView_EVENT {
			w.last = req.GetAfterSeq()
		}
		take := func(res *runlogv1.WatchRunResponse) bool { return w.take(ctx, res) }
		for {
			failure := receive(ctx, watchSilence, bind(c.projections.WatchRun, w.req), take)
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
	c       *Client
	req     *runlogv1.WatchRunRequest // of the next stream
	last    uint64                    // newest delivered runSeq, or the caller's
	placed  bool                      // last is known: a caller's token does not say
	learned bool                      // req.ResumeToken came from the server
	token   string                    // every earlier message was delivered
	left    bool                      // the caller left the loop
	tries   retrier
	yield   func(*runlogv1.WatchRunResponse, error) bool
}

// take delivers one message and returns false when the iteration ends.
func (w *watch) take(ctx context.Context, res *runlogv1.WatchRunResponse) bool {
	w.tries.answered()
	if token := res.GetResumeToken(); token != "" {
		w.req.ResumeToken, w.learned = token, true
	}
	switch kind := res.GetKind().(type) {
	case *runlogv1.WatchRunResponse_Events:
		return w.events(ctx, res, kind.Events)
	case *runlogv1.WatchRunResponse_Watermark, *runlogv1.WatchRunResponse_Snapshot, *runlogv1.WatchRunResponse_Heartbeat:
		if w.req.GetView() == runlogv1.WatchView_EVENT {
			break // a heartbeat has the position of the snapshot, not of the events
		}
		if lastSeq(res) < w.last {
			return true // a node behind the earlier one; it will catch up
		}
		w.reached(lastSeq(res))
	}
	if token := res.GetResumeToken(); token != "" {
		w.token = token
	}
	next := res.GetNextStepsPageToken()
	if err := w.c.rest(ctx, res.GetSnapshot(), &next, w.req.GetConsistency()); err != nil {
		return w.hand(nil, err)
	}
	res.NextStepsPageToken = nil
	return w.hand(res, nil)
}

// hand delivers a message, or the error that ends the watch, and reports whether to continue.
func (w *watch) hand(res *runlogv1.WatchRunResponse, err error) bool {
	w.left = !w.yield(res, err) || err != nil
	return !w.left
}

func (w *watch) reached(seq uint64) {
	w.last = seq
	w.req.AfterSeq = max(w.req.AfterSeq, seq)
}

// events delivers new events up to the first hole, and then the events after it.
func (w *watch) events(ctx context.Context, res *runlogv1.WatchRunResponse, batch *runlogv1.EventBatch) bool {
	batch.Events = slices.DeleteFunc(batch.GetEvents(), func(e *runlogv1.EventRecord) bool { return e.GetRunSeq() <= w.last })
	whole, last := 0, w.last
	for _, e := range batch.GetEvents() {
		if e.GetRunSeq() != last+1 && w.placed {
			break
		}
		whole, last, w.placed = whole+1, e.GetRunSeq(), true
	}
	rest := batch.GetEvents()[whole:]
	batch.Events = batch.GetEvents()[:whole:whole]
	// The message's own token is after the rest: a caller that resumed with it would miss that.
	behind := res.GetResumeToken()
	if len(rest) > 0 {
		res.ResumeToken = w.token
	} else {
		w.token = behind
	}
	if whole > 0 {
		w.reached(last)
		if !w.hand(res, nil) {
			return false
		}
	}
	return len(rest) == 0 || w.pass(ctx, rest, behind)
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
	case failure.Reason == ReasonResumeTokenInvalid && failure.Metadata["incarnation"] != "" && w.learned:
		if w.req.GetView() == runlogv1.WatchView_EVENT {
			return failure
		}
		w.req.ResumeToken, w.learned, w.req.AfterSeq, w.last = "", false, 0, 0
		return nil
	case failure.Reason == ReasonResumeTokenInvalid && w.learned && (w.placed || w.req.GetView() != runlogv1.WatchView_EVENT):
		// A token stands for a runSeq: resuming after the newest one loses nothing.
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

// WatchRuns yields the server's messages about the selected runs, in commit order (WATCH-2), until
// the context or the iteration ends. It reconnects with the last resume token. An error ends the
// iteration. RESUME_TOKEN_INVALID means that the token is of another watch, or, but for events, too
// old, or that the cluster was restored or recovered (READ-7): the caller starts again with
// IncludeExisting, or for events with the AfterPosition of a new answer.
func (c *Client) WatchRuns(ctx context.Context, req *runlogv1.WatchRunsRequest) iter.Seq2[*runlogv1.WatchRunsResponse, error] {
	return func(yield func(*runlogv1.WatchRunsResponse, error) bool) {
		req, tries, left := proto.CloneOf(req), retrier{client: c, token: c.opts.token()}, false
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
			if err := tries.again(ctx, cmp.Or(failure, ended(ctx))); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
