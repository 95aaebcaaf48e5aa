package outbox

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
)

// RefusedError is what the send function of Drain returns for a request that the server has refused
// for good.
type RefusedError struct{ Reason string }

// Error returns the reason.
func (e *RefusedError) Error() string { return "outbox: refused for good: " + e.Reason }

// Drain sends the pending records, those of one run in order and one at a time, and of at most
// workers runs at a time. What send returns decides:
//
//   - nil: the server has stored the events, or had them before. Drain calls Done.
//   - a *RefusedError: Drain calls Reject. Later records of the run are still sent.
//   - another error: the outcome is not known, or the server does not answer. Drain sends nothing
//     more, waits for what is under way, and returns the first such error.
//
// Drain returns nil once no record is pending. It skips unreadable records and then, if all others
// were sent, returns an error that wraps ErrUnreadable. One Drain at a time may run, or the order
// is lost.
func (o *Outbox) Drain(ctx context.Context, workers int, send func(context.Context, Record) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wait sync.WaitGroup
	queues := make([]chan Record, max(workers, 1))
	for i := range queues {
		queues[i] = make(chan Record, 1)
		wait.Go(func() {
			for r := range queues[i] {
				if ctx.Err() == nil {
					o.sendOne(ctx, r, send, stop)
				}
			}
		})
	}
	unreadable := o.distribute(ctx, queues)
	for _, q := range queues {
		close(q)
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return unreadable
}

// distribute hands each pending record to the worker of its run.
func (o *Outbox) distribute(ctx context.Context, queues []chan Record) (unreadable error) {
	seed := maphash.MakeSeed()
	for r, err := range o.Pending() {
		if err != nil && !errors.Is(err, ErrUnreadable) {
			return err
		}
		if err != nil {
			unreadable = err
			continue
		}
		select {
		case queues[maphash.String(seed, r.Request.GetRunId())%uint64(len(queues))] <- r:
		case <-ctx.Done():
			return unreadable
		}
	}
	return unreadable
}

// sendOne sends a record and notes the outcome.
func (o *Outbox) sendOne(ctx context.Context, r Record, send func(context.Context, Record) error, stop func(error)) {
	err := send(ctx, r)
	var refused *RefusedError
	switch {
	case err == nil:
		o.Done(r.ID)
	case errors.As(err, &refused):
		o.Reject(r.ID, refused.Reason)
	default:
		stop(err)
	}
}
