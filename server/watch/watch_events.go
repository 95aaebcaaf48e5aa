package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
)

// followEvents sends every event of a run until the context ends.
func (w *runWatch) followEvents(ctx context.Context, runID string) error {
	sub, err := w.s.opts.Projector.Subscribe(runID, nil)
	if err != nil {
		return tooManyWatchers(err)
	}
	defer sub.Close()
	if err := w.begin(ctx, runID); err != nil {
		return err
	}
	if err := w.events(ctx); err != nil {
		return err
	}
	if err := w.sendInTime(ctx, w.caughtUp()); err != nil {
		return err
	}
	for {
		idle, cancel := context.WithTimeout(ctx, w.s.opts.Heartbeat)
		next, err := sub.Next(idle)
		cancel()
		switch {
		case err == nil:
			w.advance(next)
			err = w.events(ctx)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			err = w.sendInTime(ctx, w.heartbeat())
		}
		if err != nil {
			return err
		}
	}
}

// events sends the events that the run has so far, in batches. It holds no view of the store while
// it sends.
func (w *runWatch) events(ctx context.Context) error {
	for {
		p, err := w.page()
		if err != nil || len(p.Events) == 0 {
			return err
		}
		w.sent = p.Events[len(p.Events)-1].RunSeq
		err = w.sendInTime(ctx, &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Events{
			Events: &runlogv1.EventBatch{Events: p.Events},
		}})
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.Next == 0:
			return nil
		}
	}
}

func (w *runWatch) page() (_ wire.Page, err error) {
	v, err := w.s.node.Store().View(w.current.RunID)
	if err != nil {
		return wire.Page{}, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return wire.ReadPage(v, wire.PageQuery{After: w.sent, Last: v.Run.LastSeq, Size: wire.StreamBatch, Form: w.form})
}

// sendInTime ends the watch of a reader that does not take a message in time: no event may be left
// out for a slow reader (WATCH-3). The end of the call releases a goroutine that hangs in Send.
func (w *runWatch) sendInTime(ctx context.Context, m *runlogv1.WatchRunResponse) error {
	sent := make(chan error, 1)
	w.s.sends.Go(func() { sent <- w.send(m) })
	patience := time.NewTimer(w.s.opts.SlowConsumer)
	defer patience.Stop()
	select {
	case err := <-sent:
		if err == nil {
			w.taken = w.sent
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-patience.C:
		w.s.slow.Inc()
		return &contract.Error{Reason: contract.ReasonSlowConsumer,
			Message:  rpc.Helpful(contract.ReasonSlowConsumer, fmt.Sprintf("a message of events waited for its reader for %v", w.s.opts.SlowConsumer)),
			Metadata: map[string]string{"run_id": w.current.RunID, "resume_token": w.tokens.format(w.taken)}}
	}
}
