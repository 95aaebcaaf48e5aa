package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

const (
	// maxLogWatches bounds the watches of events of many runs. Each reads the whole log.
	maxLogWatches = 200
	// logStep is how many events such a watch reads before it tells how far it is.
	logStep = 10_000
)

// logWatch is one stream of the events of many runs, in commit order (WATCH-2). It reads the
// store's log and does not depend on the projector.
type logWatch struct {
	s      *Service
	stream grpc.ServerStreamingServer[runlogv1.WatchRunsResponse]
	filter *run.Filter
	types  []string
	form   runlogv1.PayloadForm_Form
	tokens logTokens
	at     logPlace     // behind everything that was read
	taken  logPlace     // behind the last message that Send has accepted
	held   budget.Grant // of the piece that is being sent
}

func (s *Service) watchLog(
	ctx context.Context, req *runlogv1.WatchRunsRequest, f *run.Filter, stream grpc.ServerStreamingServer[runlogv1.WatchRunsResponse],
) error {
	if s.logs.Add(1) > maxLogWatches {
		s.logs.Add(-1)
		return rpc.TooManyStreams()
	}
	defer s.logs.Add(-1)
	w := logWatch{s: s, stream: stream, filter: f, types: req.Types, form: req.PayloadForm, tokens: newLogTokens(s.node.Store().Incarnation(), f, req.Types)}
	store := s.node.Store()
	applied := store.Applied()
	if err := w.begin(req, applied); err != nil {
		return err
	}
	log, target := store.Follow(storage.Whole), applied.Position()
	for caughtUp := false; ; {
		if err := w.read(ctx, log); err != nil {
			return err
		}
		if !caughtUp && w.at.cursor.Position >= target {
			caughtUp = true
			if err := w.send(ctx, &runlogv1.WatchRunsResponse{Kind: &runlogv1.WatchRunsResponse_CaughtUp{CaughtUp: &runlogv1.CaughtUp{}}}); err != nil {
				return err
			}
		}
		idle, cancel := context.WithTimeout(ctx, s.opts.Heartbeat)
		err := store.Wait(idle, w.at.cursor.Position)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			err = w.send(ctx, &runlogv1.WatchRunsResponse{Kind: &runlogv1.WatchRunsResponse_Heartbeat{Heartbeat: &runlogv1.Heartbeat{}}})
		}
		if err != nil {
			return err
		}
	}
}

// begin finds the place where the watch begins.
func (w *logWatch) begin(req *runlogv1.WatchRunsRequest, applied storage.Applied) error {
	w.at.cursor.Position = applied.Position()
	switch {
	case req.ResumeToken != "":
		at, ok := w.tokens.parse(req.ResumeToken)
		if err := checkResumed(&w.tokens.domain, req.ResumeToken, ok, at.cursor, applied); err != nil {
			return err
		}
		w.at = at
	case req.AfterPosition != "":
		after, err := rpc.ParsePosition("afterPosition", req.AfterPosition, applied.Incarnation)
		if err != nil {
			return err
		}
		if after > applied.Position() {
			return rpc.Invalid("afterPosition", "is ahead of everything that the node has")
		}
		w.at.cursor.Position = after
	}
	w.taken = w.at
	return nil
}

// read sends the events that are stored now, and moves behind them. After some events without a
// message it sends a heartbeat, so that a reader's token is not far behind.
func (w *logWatch) read(ctx context.Context, log *storage.Follower) (err error) {
	if w.held, err = w.s.opts.Memory.Acquire(budget.Shared, 0); err != nil {
		return err
	}
	defer func() { w.held.Release() }()
	for complete := false; !complete; {
		messages, end, whole, err := w.collect(log)
		if err != nil {
			return err
		}
		for _, m := range messages {
			w.at = m.behind
			if err := w.send(ctx, &runlogv1.WatchRunsResponse{Kind: &runlogv1.WatchRunsResponse_Events{Events: m.events}}); err != nil {
				return err
			}
		}
		w.held.Release()
		w.at, complete = end, whole
		if !complete && len(messages) == 0 {
			if err := w.send(ctx, &runlogv1.WatchRunsResponse{Kind: &runlogv1.WatchRunsResponse_Heartbeat{Heartbeat: &runlogv1.Heartbeat{}}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// logMessage is a message with events of one run, and the place behind it.
type logMessage struct {
	events *runlogv1.EventBatch
	behind logPlace
}

// collect reads a piece of the log. It returns the messages to send, the place behind the piece,
// and whether that is the end of the log. It holds no view of the store afterwards.
func (w *logWatch) collect(log *storage.Follower) (out []logMessage, end logPlace, complete bool, err error) {
	applied := w.s.node.Store().Applied()
	end = w.at
	at, looked, size := watch.Cursor{Position: w.at.cursor.Position}, 0, 0
	for c, err := range log.Log(w.at.cursor.Position) {
		if err != nil {
			return nil, end, false, err
		}
		before := at
		at = at.Next(c.Position)
		if at.Compare(w.at.cursor) <= 0 {
			continue
		}
		if looked >= logStep || size >= wire.PageBytes {
			return out, end, false, nil
		}
		looked += max(1, len(c.Records))
		next := 0
		if before == w.at.cursor {
			next = min(int(w.at.sent), len(c.Records))
		}
		for next < len(c.Records) && w.filter.Names(c.Run) {
			if size >= wire.PageBytes {
				return out, end, false, nil
			}
			var batch runlogv1.EventBatch
			var bytes int
			if next, bytes, err = w.batch(&batch, c.Records, next); err != nil {
				return nil, end, false, err
			}
			if err := w.held.Grow(wire.PageForms * int64(bytes)); err != nil {
				return nil, end, false, err
			}
			size, end = size+bytes, logPlace{cursor: before, sent: uint64(next)}
			if next == len(c.Records) {
				end = logPlace{cursor: at}
			}
			if len(batch.Events) > 0 {
				out = append(out, logMessage{&batch, end})
			}
		}
		end = logPlace{cursor: at}
	}
	if whole := (watch.Cursor{Position: applied.Position()}); end.cursor.Compare(whole) < 0 {
		end = logPlace{cursor: whole}
	}
	return out, end, true, nil
}

// batch fills a message with the events from an index on. It returns the index behind them, and
// their size in bytes.
func (w *logWatch) batch(to *runlogv1.EventBatch, records []storage.Record, from int) (next, bytes int, err error) {
	for next = from; next < len(records) && len(to.Events) < wire.StreamBatch && bytes < wire.PageBytes; next++ {
		r := &records[next]
		if len(w.types) > 0 && !slices.Contains(w.types, r.Type) {
			continue
		}
		m, err := wire.Record(r, w.form)
		if err != nil {
			return 0, 0, err
		}
		to.Events, bytes = append(to.Events, m), bytes+proto.Size(m)
	}
	return next, bytes, nil
}

// send sends a message whose token is behind everything read. It ends the watch of a reader that
// does not take it in time (WATCH-3).
func (w *logWatch) send(ctx context.Context, m *runlogv1.WatchRunsResponse) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.ResumeToken = w.tokens.format(w.at)
	err := w.s.inTime(ctx, func() error { return w.stream.Send(m) }, func() map[string]string {
		return map[string]string{"resume_token": w.tokens.format(w.taken)}
	})
	if err == nil {
		w.taken = w.at
	}
	return err
}

// inTime calls send. If that takes too long, it ends the watch: no event may be left out for a slow
// reader (WATCH-3). The end of the call releases a goroutine that hangs in Send.
func (s *Service) inTime(ctx context.Context, send func() error, metadata func() map[string]string) error {
	sent := make(chan error, 1)
	s.sends.Go(func() { sent <- send() })
	patience := time.NewTimer(s.opts.SlowConsumer)
	defer patience.Stop()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-patience.C:
		s.slow.Inc()
		return &contract.Error{Reason: contract.ReasonSlowConsumer,
			Message:  rpc.Helpful(contract.ReasonSlowConsumer, fmt.Sprintf("a message of events waited for its reader for %v", s.opts.SlowConsumer)),
			Metadata: metadata()}
	}
}
