package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"runlog/projector/run"
	pwatch "runlog/projector/watch"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// leaderWait is how long a watch waits for a node that does not lead yet.
const leaderWait = 5 * time.Second

var errStopping = &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping; resume the watch on another"}

// WatchRun yields watermarks, snapshots or events: first what there is, then every change
// (WATCH-1), and a heartbeat when nothing happens (WATCH-4). For a slow reader watermarks and
// snapshots are conflated to the newest (WATCH-3).
func (p *projectionService) WatchRun(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
	w := watch{s: p.s, stream: stream, view: req.View, form: req.PayloadForm, sent: req.AfterSeq,
		tokens: newWatchTokens(p.s.clusterID, req.RunId)}
	if _, known := runlogv1.WatchView_Kind_name[int32(req.View)]; !known {
		return statusOf(invalid("view", "is not a view; the views are WATERMARK, SNAPSHOT and EVENT"))
	}
	if req.ResumeToken != "" {
		var err error
		if w.sent, err = w.tokens.parse(req.ResumeToken); err != nil {
			return statusOf(err)
		}
	}
	w.taken = w.sent
	ctx, cancel := p.s.watching(stream.Context())
	defer cancel()
	return statusOf(endOf(ctx, w.run(ctx, req.RunId)))
}

// endOf tells why a stream ended, also where it ended in the middle of something that knows only
// that the context did.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// watching returns the context of a stream, which ends with the node too: clients resume elsewhere.
func (s *Server) watching(stream context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(stream)
	forget := context.AfterFunc(s.stopping, func() { cancel(errStopping) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

// awaitLeader waits a while for a node that is about to follow or to lead: a browser gives an
// EventSource up for good when it is refused.
func (s *Server) awaitLeader(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	_ = s.cluster.AwaitLeader(ctx, nil)
}

func tooManyWatchers(err error) error {
	if !errors.Is(err, pwatch.ErrTooManyWatchers) {
		return err
	}
	return tooManyStreams()
}

func tooManyStreams() *contract.Error {
	return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: time.Second,
		Message: "the node serves as many streams as it may"}
}

// watch is one stream about one run. Events are sent by the goroutine of the call; watermarks and
// snapshots, once the reader has caught up, by the dispatcher.
type watch struct {
	s       *Server
	stream  grpc.ServerStreamingServer[runlogv1.WatchRunResponse]
	sub     *pwatch.Subscription
	view    runlogv1.WatchView_Kind
	form    runlogv1.PayloadForm_Form
	tokens  watchTokens
	sent    uint64        // the highest runSeq told; never goes back (WATCH-3)
	current *run.Snapshot // the newest one known
	taken   uint64        // sent, as the last message had it that is on its way
	stale   bool          // the reader was told that the run is STALE (PRJ-12)
}

// run follows the run until the context ends.
func (w *watch) run(ctx context.Context, runID string) (err error) {
	if w.view == runlogv1.WatchView_EVENT {
		return w.followEvents(ctx, runID)
	}
	post := w.s.watches.join(w)
	defer w.s.watches.leave(post)
	if w.sub, err = w.s.projector.Subscribe(runID, func() { w.s.watches.news(post) }); err != nil {
		return tooManyWatchers(err)
	}
	defer w.sub.Close()
	if err := w.begin(ctx, runID); err != nil {
		return err
	}
	// The lag of what a reader catches up on is 0: it was served long before.
	if stale := w.s.projector.Stale(runID); w.isNews(stale) {
		w.sent, w.stale = w.current.LastEventSeq, stale
		if err := w.send(w.message(0)); err != nil {
			return err
		}
	}
	if err := w.send(w.caughtUp()); err != nil {
		return err
	}
	w.s.watches.release(post)
	select {
	case err := <-post.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin reads where the run is. Whoever subscribed before sees what happens in between twice, never
// not at all.
func (w *watch) begin(ctx context.Context, runID string) error {
	w.s.awaitLeader(ctx)
	v, err := w.s.view(ctx, runID, runlogv1.Consistency_LINEARIZABLE, 0)
	if err != nil {
		return err
	}
	w.current, err = w.s.projector.Snapshot(v.View)
	return errors.Join(err, v.Close())
}

// advance takes over a newer snapshot. A watch may begin ahead of the projector, which then
// publishes what the reader knows (WATCH-3).
func (w *watch) advance(next *run.Snapshot) {
	if next != nil && next.LastEventSeq > w.current.LastEventSeq {
		w.current = next
	}
}

// isNews says whether the reader does not know yet where the run is, or that it is STALE.
func (w *watch) isNews(stale bool) bool {
	return w.current.LastEventSeq > w.sent || w.current.LastEventSeq == w.sent && stale && !w.stale
}

// deliver is called by the dispatcher.
func (w *watch) deliver(beat bool, shared messages) error {
	w.advance(w.sub.Take())
	stale := w.s.projector.Stale(w.current.RunID)
	switch {
	case w.isNews(stale):
		w.sent, w.stale = w.current.LastEventSeq, stale
		return w.sendShared(shared)
	case beat:
		return w.send(w.heartbeat())
	default:
		return nil
	}
}

// messageKey is what all watchers of a run with one view get.
type messageKey struct {
	view     runlogv1.WatchView_Kind
	snapshot *run.Snapshot
	stale    bool
}

// sendShared sends where the run is, in a message that is encoded once for all of its watchers. No
// compressor is registered with gRPC, so that the bytes are the same on every stream.
func (w *watch) sendShared(shared messages) error {
	key := messageKey{w.view, w.current, w.stale}
	m := shared[key]
	if m == nil {
		m = &grpc.PreparedMsg{}
		if err := m.Encode(w.stream, w.withToken(w.message(w.s.lag(w.sub.Committed())))); err != nil {
			return err
		}
		shared[key] = m
	}
	return w.stream.SendMsg(m)
}

// message tells where the run is.
func (w *watch) message(lag time.Duration) *runlogv1.WatchRunResponse {
	if w.view == runlogv1.WatchView_SNAPSHOT {
		m := w.s.encodeSnapshotAt(w.current, w.s.opts.Clock())
		m.Stale = w.stale
		return &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Snapshot{Snapshot: m}}
	}
	m := w.watermark(lag)
	m.Stale = w.stale
	return &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: m}}
}

func (w *watch) withToken(m *runlogv1.WatchRunResponse) *runlogv1.WatchRunResponse {
	m.ResumeToken = w.tokens.format(w.sent)
	return m
}

func (w *watch) send(m *runlogv1.WatchRunResponse) error { return w.stream.Send(w.withToken(m)) }

func (w *watch) caughtUp() *runlogv1.WatchRunResponse {
	return &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_CaughtUp{
		CaughtUp: &runlogv1.CaughtUp{Watermark: w.watermark(0)},
	}}
}

func (w *watch) heartbeat() *runlogv1.WatchRunResponse {
	return &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Heartbeat{
		Heartbeat: &runlogv1.Heartbeat{Watermark: w.watermark(0)},
	}}
}

func (w *watch) watermark(lag time.Duration) *runlogv1.Watermark {
	mark := pwatch.MarkOf(w.current)
	m := w.s.encodeMark(&mark, lag)
	m.Stale = w.s.projector.Stale(w.current.RunID)
	return m
}

func (s *Server) encodeMark(m *pwatch.Mark, lag time.Duration) *runlogv1.Watermark {
	return &runlogv1.Watermark{
		RunId:        m.RunID,
		LastEventSeq: m.LastEventSeq,
		Status:       runlogv1.RunStatus_Value(m.Status),
		Substatus:    optional(m.Substatus(s.opts.Clock(), s.opts.DrainTimeout)),
		PersistedAt:  optionalTime(m.PersistedAt),
		LagMs:        lag.Milliseconds(),
	}
}

// lag is the time from when a run's newest event came into the log to now (PRJ-11).
func (s *Server) lag(committed time.Time) time.Duration {
	return max(0, s.opts.Clock().Sub(committed))
}
