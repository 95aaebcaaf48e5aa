package watch

import (
	"context"
	"errors"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc/wire"
)

// followEvents sends every event of a run until the context ends.
func (w *runWatch) followEvents(ctx context.Context) error {
	sub, err := w.s.opts.Projector.Subscribe(w.runID, nil)
	if err != nil {
		return tooManyWatchers(err)
	}
	defer sub.Close()
	if err := w.begin(ctx); err != nil {
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
		p, err := w.page(ctx)
		if err != nil || len(p.Events) == 0 {
			p.Release()
			return err
		}
		w.sent = p.Events[len(p.Events)-1].RunSeq
		err = w.sendInTime(ctx, &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Events{
			Events: &runlogv1.EventBatch{Events: p.Events},
		}})
		p.Release()
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

func (w *runWatch) page(ctx context.Context) (_ wire.Page, err error) {
	v, err := w.s.node.Store().View(w.runID)
	if err != nil {
		return wire.Page{}, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return wire.ReadPage(ctx, v, wire.PageQuery{After: w.sent, Last: v.Run.LastSeq, Size: wire.StreamBatch, Form: w.form, Memory: w.s.opts.Memory})
}

// sendInTime ends the watch of a reader that does not take a message in time.
func (w *runWatch) sendInTime(ctx context.Context, m *runlogv1.WatchRunResponse) error {
	err := w.s.inTime(ctx, func() error { return w.send(m) }, func() map[string]string {
		return map[string]string{"run_id": w.runID, "resume_token": w.tokens.format(w.taken)}
	})
	if err == nil {
		w.taken = w.sent
	}
	return err
}
