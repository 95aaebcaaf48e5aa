package bus

import (
	"context"
	"errors"
	"time"

	"runlog/server/servertest/history"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/sink/attempt"
)

// sinkTimeout is that of one attempt.
const sinkTimeout = 2 * time.Second

// Sink is the receiver of the subscription to a sink, as a node reaches it.
type Sink struct {
	bus       *Bus
	reachable func() bool
	attempts  *attempt.Group
}

var errSink = errors.New("bus: the sink fails")

// OpenSink returns the way to the sink of a node. What the node sends is lost while it is not
// reachable.
func (b *Bus) OpenSink(reachable func() bool) *Sink {
	return &Sink{bus: b, reachable: reachable, attempts: attempt.NewGroup(attempt.Options{
		Timeout: sinkTimeout, Late: func() error { return errSink },
	})}
}

// draw draws what becomes of an attempt, and how long that takes.
func (b *Bus) draw() (takes time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	takes = time.Duration(b.sinks.Int64N(int64(200 * time.Millisecond)))
	switch n := b.sinks.IntN(20); {
	case b.calm.Load():
		return takes, nil
	case n < 4:
		return takes, errSink
	case n < 5:
		return takes, &attempt.PermanentError{Err: errSink}
	case n < 6:
		return takes, &attempt.BusyError{Err: errSink, After: 300 * time.Millisecond}
	case n < 7:
		return 2 * sinkTimeout, nil
	}
	return takes, nil
}

// Send hands an event over.
func (s *Sink) Send(ctx context.Context, e *cloudevent.Event, done func(error)) {
	if !s.reachable() {
		s.attempts.Go(ctx, func(context.Context) error { return errSink }, done)
		return
	}
	p := history.Place{Run: e.Record.RunID, RunSeq: e.Record.RunSeq}
	s.bus.delivered(sinkName, p, s.bus.opts.Recorder.Now(), e.Record.PersistedAt)
	takes, failure := s.bus.draw()
	var ticket *history.ActTicket
	s.attempts.Go(ctx, func(ctx context.Context) error {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
		if failure != nil {
			return failure
		}
		t := s.bus.opts.Recorder.CallAct(history.Act{Kind: history.Acked, Subscription: sinkName, Places: []history.Place{p}})
		if !s.reachable() {
			return errSink
		}
		ticket = &t
		return nil
	}, func(err error) {
		done(err)
		if err == nil && ticket != nil && s.reachable() {
			s.bus.opts.Recorder.ReturnAct(*ticket, true)
		}
	})
}

// Close ends the attempts that are under way.
func (s *Sink) Close() error {
	s.attempts.Close()
	return nil
}
