package queue

import (
	"context"
	"errors"
	"math"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/metadata"
	"runlog/storage/machine/queue"
)

// parseStart checks what a release stores of the start, and validates the events as an append does.
// The error is that of the events, and bad has the same violations among those of other fields.
func (s *Service) parseStart(r *leaseRelease, bad *violations) error {
	started := r.Outcome == runlogv1.LeaseOutcome_STARTED
	if r.EngineRunRef != nil {
		if !started {
			bad.Add("engineRunRef", "is sent with STARTED alone")
		}
		if bad.Add("engineRunRef", rpc.URIFault(*r.EngineRunRef)); *r.EngineRunRef == "" {
			bad.Add("engineRunRef", "is empty: name the engine's own run, or leave it out")
		}
	}
	switch {
	case len(r.Events) == 0:
		return nil
	case !started:
		bad.Add("events", "are sent with STARTED alone")
	}
	var err error
	if fault := decode.CheckStart(len(r.Events)); fault != nil {
		err = fault
	} else {
		r.events, err = contract.ValidateAll(r.Events, s.opts.Rules(r.RunId))
	}
	if faults, ok := errors.AsType[*contract.Error](err); ok && len(bad.Violations) > 0 {
		bad.Violations = append(bad.Violations, faults.Violations...)
	}
	return err
}

// releaseStarted proposes the release of a run that the engine has, with what it stores of the
// start. waiting is nil for a run in no queue.
func (s *Service) releaseStarted(ctx context.Context, r *leaseRelease, waiting *queue.Run) (*runlogv1.ReleaseLeaseResponse, error) {
	op, err := queue.Release(&queue.LeaseRelease{RunID: r.RunId, Fence: r.Fence, Outcome: queue.Started})
	if err != nil {
		return nil, err
	}
	a := s.appendOf(ctx, r)
	if len(a.Events) > 0 {
		if err := rpc.CheckAppend(ctx, s.node, a); err != nil {
			return nil, err
		}
	}
	done, err := s.storeStart(ctx, r, a, op)
	if endedUnder(r.Fence, err) {
		return s.releaseEnded(ctx, r, a, &done, err)
	}
	if err != nil {
		return nil, err
	}
	state, repeated, err := queue.DecodeRelease(done.Answers[0].Reply)
	if state == queue.Running && !repeated && waiting != nil && !waiting.Released {
		s.metrics.started.Observe(time.Duration(done.PersistedAt - waiting.EnqueuedAt).Seconds())
	}
	if done.Ended {
		state = queue.Ended
	}
	return s.startedResponse(a, &done, state, repeated), err
}

// releaseEnded answers a release of a run that has ended with the lease. Events that are stored are
// answered as duplicates; none is stored behind the end of the run. gone is the refusal.
func (s *Service) releaseEnded(ctx context.Context, r *leaseRelease, a *storage.Append, done *replica.Appended, gone error) (
	*runlogv1.ReleaseLeaseResponse, error) {
	if len(a.Events) > 0 || r.EngineRunRef != nil {
		never := uint64(math.MaxUint64)
		a.ExpectedLastSeq = &never // An append of duplicates has no condition (APP-4).
		again, err := s.storeStart(ctx, r, a)
		if errors.As(err, new(*storage.SequenceError)) {
			return nil, gone
		}
		if err != nil {
			return nil, err
		}
		done = &again
	}
	return s.startedResponse(a, done, queue.Ended, true), nil
}

// appendOf is the append of the events of a release, under its fence.
func (s *Service) appendOf(ctx context.Context, r *leaseRelease) *storage.Append {
	return &storage.Append{RunID: r.RunId, Events: r.events, Fence: &r.Fence, AppendedBy: caller(ctx)}
}

// storeStart executes operations, and stores the reference and the events of a release behind them,
// all or none.
func (s *Service) storeStart(ctx context.Context, r *leaseRelease, a *storage.Append, operations ...storage.Operation) (replica.Appended, error) {
	if r.EngineRunRef != nil {
		set, err := metadata.Set(r.RunId, *r.EngineRunRef, caller(ctx), &r.Fence)
		if err != nil {
			return replica.Appended{}, err
		}
		operations = append(operations, set)
	}
	if len(a.Events) > 0 {
		return s.node.ExecuteAppend(ctx, a, replica.Around{Before: operations})
	}
	outcome, err := s.execute(ctx, operations...)
	return replica.Appended{Outcome: outcome}, err
}

func (s *Service) startedResponse(a *storage.Append, done *replica.Appended, state queue.State, repeated bool) *runlogv1.ReleaseLeaseResponse {
	return &runlogv1.ReleaseLeaseResponse{
		State: wireState(state), Idempotent: repeated, Position: rpc.FormatPosition(s.node.Store().Incarnation(), done.Position),
		Results: wire.Results(a.Events, &done.Outcome, done.Diverged, done.Keys),
	}
}
