package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"runlog/projector"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// leaderWait is how long a watch waits for a node that does not lead yet.
const leaderWait = 5 * time.Second

var errStopping = &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping; resume the watch on another"}

// WatchRun yields watermarks, snapshots or events: first what there is, then every change (WATCH-1), and a heartbeat
// when nothing happens (WATCH-4). For a slow reader watermarks and snapshots are conflated to the newest (WATCH-3).
func (p *projectionService) WatchRun(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
	w := watch{s: p.s, stream: stream, view: req.View, form: req.PayloadForm, sent: req.AfterSeq}
	if _, known := runlogv1.WatchView_Kind_name[int32(req.View)]; !known {
		return statusOf(invalid("view", "is not a view; the views are WATERMARK, SNAPSHOT and EVENT"))
	}
	if req.ResumeToken != "" {
		var err error
		if w.sent, err = parseWatchToken(req.ResumeToken); err != nil {
			return statusOf(err)
		}
	}
	w.taken = w.sent
	ctx, cancel := p.s.watching(stream.Context())
	defer cancel()
	return statusOf(w.run(ctx, req.RunId))
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

// awaitLeading waits a while for a node that is about to lead: a browser gives an EventSource up for good when it is
// refused.
func (s *Server) awaitLeading(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	_ = s.node.WaitLeading(ctx)
}

func tooManyWatchers(err error) error {
	if !errors.Is(err, projector.ErrTooManyWatchers) {
		return err
	}
	return tooManyStreams()
}

func tooManyStreams() *contract.Error {
	return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: time.Second,
		Message: "the node serves as many streams as it may"}
}

// watch is one stream about one run.
type watch struct {
	s       *Server
	stream  grpc.ServerStreamingServer[runlogv1.WatchRunResponse]
	view    runlogv1.WatchView_Kind
	form    runlogv1.PayloadForm_Form
	sent    uint64              // the highest runSeq told; never goes back (WATCH-3)
	current *projector.Snapshot // the newest one known
	taken   uint64              // sent, as the last message had it that is on its way
	stale   bool                // the reader was told that the run is STALE (PRJ-12)
}

// run follows the run until the context ends.
func (w *watch) run(ctx context.Context, runID string) error {
	// Subscribe first, read second: what happens in between is seen twice, never not at all.
	sub, err := w.s.projector.Subscribe(runID)
	if err != nil {
		return tooManyWatchers(err)
	}
	defer sub.Close()
	w.s.awaitLeading(ctx)
	v, err := w.s.view(ctx, runID, runlogv1.Consistency_LINEARIZABLE, 0)
	if err != nil {
		return err
	}
	w.current, err = w.s.projector.Snapshot(v.View)
	if err := errors.Join(err, v.Close()); err != nil {
		return err
	}
	// The lag of what a reader catches up on is 0: it was served long before.
	if err := w.tell(ctx, 0); err != nil {
		return err
	}
	if err := w.caughtUp(ctx); err != nil {
		return err
	}
	for {
		idle, cancel := context.WithTimeout(ctx, w.s.opts.Heartbeat)
		next, err := sub.Next(idle)
		cancel()
		switch {
		case err == nil:
			// A watch may begin ahead of the projector, which then publishes what the reader knows (WATCH-3).
			if next.LastEventSeq > w.current.LastEventSeq {
				w.current = next
			}
			err = w.tell(ctx, w.s.lag(sub.Committed()))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			err = w.heartbeat(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// tell sends what the reader does not have yet.
func (w *watch) tell(ctx context.Context, lag time.Duration) error {
	if w.view == runlogv1.WatchView_EVENT {
		return w.events(ctx)
	}
	stale := w.s.projector.Stale(w.current.RunID)
	news := w.current.LastEventSeq > w.sent || w.current.LastEventSeq == w.sent && stale && !w.stale
	if !news {
		return nil
	}
	w.sent, w.stale = w.current.LastEventSeq, stale
	if w.view == runlogv1.WatchView_SNAPSHOT {
		m := w.s.encodeSnapshotAt(w.current, w.s.opts.Clock())
		m.Stale = stale
		return w.send(ctx, &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Snapshot{Snapshot: m}})
	}
	return w.send(ctx, &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: w.watermark(lag)}})
}

// events sends the events that the run has by now, in batches. It holds nothing of the store while it sends one.
func (w *watch) events(ctx context.Context) error {
	for {
		p, err := w.page()
		if err != nil || len(p.events) == 0 {
			return err
		}
		w.sent = p.events[len(p.events)-1].RunSeq
		err = w.send(ctx, &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Events{
			Events: &runlogv1.EventBatch{Events: p.events},
		}})
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.next == 0:
			return nil
		}
	}
}

func (w *watch) page() (_ page, err error) {
	v, err := w.s.store.View(w.current.RunID)
	if err != nil {
		return page{}, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return readPage(v, pageQuery{after: w.sent, last: v.Run.LastSeq, size: streamBatch, form: w.form})
}

func (w *watch) caughtUp(ctx context.Context) error {
	return w.send(ctx, &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_CaughtUp{
		CaughtUp: &runlogv1.CaughtUp{Watermark: w.watermark(0)},
	}})
}

func (w *watch) heartbeat(ctx context.Context) error {
	return w.send(ctx, &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Heartbeat{
		Heartbeat: &runlogv1.Heartbeat{Watermark: w.watermark(0)},
	}})
}

func (w *watch) send(ctx context.Context, m *runlogv1.WatchRunResponse) error {
	m.ResumeToken = formatWatchToken(w.sent)
	if w.view != runlogv1.WatchView_EVENT {
		return w.stream.Send(m)
	}
	err := w.sendInTime(ctx, m)
	if err == nil {
		w.taken = w.sent
	}
	return err
}

// sendInTime gives up a reader that does not take a message for too long: no event can be left out for one that is
// slow (WATCH-3). What hangs in Send is freed by the end of the call.
func (w *watch) sendInTime(ctx context.Context, m *runlogv1.WatchRunResponse) error {
	sent := make(chan error, 1)
	w.s.sends.Go(func() { sent <- w.stream.Send(m) })
	patience := time.NewTimer(w.s.opts.SlowConsumer)
	defer patience.Stop()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-patience.C:
		return &contract.Error{Reason: contract.ReasonSlowConsumer,
			Message:  helpful(contract.ReasonSlowConsumer, fmt.Sprintf("a message of events waited for its reader for %v", w.s.opts.SlowConsumer)),
			Metadata: map[string]string{"run_id": w.current.RunID, "resume_token": formatWatchToken(w.taken)}}
	}
}

func (w *watch) watermark(lag time.Duration) *runlogv1.Watermark {
	mark := projector.MarkOf(w.current)
	m := w.s.encodeMark(&mark, lag)
	m.Stale = w.s.projector.Stale(w.current.RunID)
	return m
}

func (s *Server) encodeMark(m *projector.Mark, lag time.Duration) *runlogv1.Watermark {
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
