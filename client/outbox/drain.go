package outbox

import (
	"cmp"
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

// HoldError is what the send function of Drain returns for a request that the server does not take
// now, while it may take those of other runs.
type HoldError struct{ Cause error }

// Error returns the cause.
func (e *HoldError) Error() string { return "outbox: not taken now: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *HoldError) Unwrap() error { return e.Cause }

// Drain sends the pending records, those of one run in order and one at a time, and of at most
// workers runs at a time. What send returns decides:
//
//   - nil: the server has stored the events, or had them before. Drain calls Done.
//   - a *RefusedError: Drain calls Reject. Later records of the run are still sent.
//   - a *HoldError: Drain sends nothing more of the run, and returns the error at its end.
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
	held := make([]error, len(queues)) // by worker: the first of its holds
	for i := range queues {
		queues[i] = make(chan Record, 1)
		wait.Go(func() {
			runs := map[string]bool{} // that are held
			for r := range queues[i] {
				if run := r.Request.GetRunId(); ctx.Err() == nil && !runs[run] {
					if hold := o.sendOne(ctx, r, send, stop); hold != nil {
						runs[run], held[i] = true, cmp.Or(held[i], hold)
					}
				}
			}
		})
	}
	unreadable := o.distribute(ctx, queues)
	for _, q := range queues {
		close(q)
	}
	wait.Wait()
	return cmp.Or(context.Cause(ctx), cmp.Or(held...), unreadable)
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

// sendOne sends a record and notes the outcome. It returns the error that holds the run, or nil.
func (o *Outbox) sendOne(ctx context.Context, r Record, send func(context.Context, Record) error, stop func(error)) error {
	err := send(ctx, r)
	var refused *RefusedError
	var hold *HoldError
	switch {
	case err == nil:
		o.Done(r.ID)
	case errors.As(err, &refused):
		o.Reject(r.ID, refused.Reason)
	case errors.As(err, &hold):
		return err
	default:
		stop(err)
	}
	return nil
}
