package replica

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/storage"
)

// ErrStopping is the error of waiting calls while the node stops.
var ErrStopping = &contract.Error{Reason: contract.ReasonShuttingDown,
	Message: "the node is stopping; send the request to another node"}

// Reading is a view of a run, and the applied state of the store before the view was opened. The
// caller must close it.
type Reading struct {
	*storage.View
	At storage.Applied
}

// View opens a run for reading with a consistency, once the run has reached minSeq (READ-2).
func (r *Replica) View(ctx context.Context, runID string, level runlogv1.Consistency_Level, minSeq uint64,
) (*Reading, error) {
	if err := r.Readable(ctx, runID, level); err != nil {
		return nil, err
	}
	return r.Open(ctx, runID, minSeq)
}

// Readable returns once a run may be read with a consistency.
func (r *Replica) Readable(ctx context.Context, runID string, level runlogv1.Consistency_Level) error {
	if fault := contract.StoredNameFault(runID); fault != "" {
		return contract.NewError([]contract.Violation{
			{Field: "runId", Reason: contract.ReasonInvalidArgumentField, Description: fault},
		})
	}
	if level == runlogv1.Consistency_LOCAL {
		return nil
	}
	return r.ReadIndex(ctx)
}

// Open opens a run that may be read, once the run has reached minSeq.
func (r *Replica) Open(ctx context.Context, runID string, minSeq uint64) (*Reading, error) {
	ctx, cancel := r.Waiting(ctx)
	defer cancel()
	var last uint64
	for {
		at := r.store.Applied()
		v, err := r.view(ctx, runID)
		var missing *storage.RunNotFoundError
		switch {
		case err == nil && v.Run.LastSeq >= minSeq:
			return &Reading{View: v, At: at}, nil
		case err == nil:
			last = v.Run.LastSeq
			if err := v.Close(); err != nil {
				return nil, err
			}
		case minSeq == 0 || !errors.As(err, &missing):
			return nil, err
		}
		if r.store.Wait(ctx, at.Position()) == nil {
			continue
		}
		if cause := context.Cause(ctx); errors.Is(cause, ErrStopping) || errors.Is(cause, context.Canceled) {
			return nil, fmt.Errorf("run %q has not reached runSeq %d: %w", runID, minSeq, cause)
		}
		if err != nil {
			return nil, err
		}
		return nil, notReached(runID, minSeq, last)
	}
}

// view opens a run. A run of a tenant that the caller does not see is not found (SEC-4).
func (r *Replica) view(ctx context.Context, runID string) (*storage.View, error) {
	v, err := r.store.View(runID)
	if err != nil || auth.From(ctx).Sees(v.Run.Scope.TenantID) {
		return v, err
	}
	return nil, errors.Join(&storage.RunNotFoundError{RunID: runID}, v.Close())
}

func notReached(runID string, minSeq, last uint64) error {
	return &contract.Error{Reason: contract.ReasonNotReached,
		Message: fmt.Sprintf("run %q has not reached runSeq %d: it is at %d", runID, minSeq, last),
		Metadata: map[string]string{
			"run_id": runID, "min_seq": strconv.FormatUint(minSeq, 10), "last_seq": strconv.FormatUint(last, 10),
		}}
}

// Waiting bounds how long a read waits, by Options.MaxWait and by the shutdown of the node. In the
// second case the cause of the context is ErrStopping.
func (r *Replica) Waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithTimeout(ctx, r.opts.MaxWait)
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(r.opts.Stopping, func() { cancel(ErrStopping) })
	return ctx, func() {
		forget()
		cancel(nil)
		end()
	}
}

// Await returns once the store has applied a position.
func (r *Replica) Await(ctx context.Context, p storage.Position) error {
	if p == 0 {
		return nil
	}
	return r.store.Wait(ctx, p-1)
}
