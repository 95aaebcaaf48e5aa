package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

const (
	// maxRetryAfter is the longest that a worker may put a run off for.
	maxRetryAfter = 24 * time.Hour
	// firstBackoff and maxBackoff bound the random time after which a start that failed is tried
	// again.
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// skipped is the reasonCode of a run that its worker did not start.
	skipped = "START_SKIPPED"
)

// RenewLease lets a lease last longer (QUE-7).
func (s *Service) RenewLease(ctx context.Context, req *runlogv1.RenewLeaseRequest) (*runlogv1.RenewLeaseResponse, error) {
	var bad violations
	bad.lease(req.RunId, req.Fence)
	ttl := bad.Duration("ttl", req.Ttl, shortest, longest, 0)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if _, _, err := s.callersQueued(ctx, req.RunId); err != nil {
		return nil, err
	}
	op, err := queue.Renew(req.RunId, req.Fence, ttl)
	if err != nil {
		return nil, err
	}
	outcome, err := s.execute(ctx, op)
	if err != nil {
		return nil, rpc.TellHolder(s.node.Store(), leaseRefusal(req.Fence, err))
	}
	expires, err := queue.DecodeRenew(outcome.Answers[0].Reply)
	return &runlogv1.RenewLeaseResponse{ExpireTime: wire.Timestamp(expires)}, err
}

// lease checks what a request about a lease names.
func (v *violations) lease(runID string, fence uint64) {
	v.Add("runId", contract.NameFault(runID))
	if fence == 0 {
		v.Add("fence", "is required: send the fence of the lease")
	}
}

// text checks a text for people.
func (v *violations) text(field, text string) {
	if len(text) > maxText {
		v.Add(field, fmt.Sprintf("is %d bytes long: send at most %d", len(text), maxText))
	}
}

// leaseRelease is a ReleaseLease that was checked.
type leaseRelease struct {
	*runlogv1.ReleaseLeaseRequest
	retryAfter time.Duration // negative: the request does not say
	events     []contract.Event
}

// ReleaseLease ends the time limit of a lease, and stores what the worker says of the start
// (QUE-7). After STARTED the fence of the lease stays current.
func (s *Service) ReleaseLease(ctx context.Context, req *runlogv1.ReleaseLeaseRequest) (*runlogv1.ReleaseLeaseResponse, error) {
	r, err := s.parseRelease(req)
	if err != nil {
		return nil, err
	}
	for range tries {
		var resp *runlogv1.ReleaseLeaseResponse
		if resp, err = s.release(ctx, r); !again(err) {
			return resp, rpc.TellHolder(s.node.Store(), leaseRefusal(req.Fence, err))
		}
	}
	return nil, refusal(err)
}

// parseRelease checks every field of a request.
func (s *Service) parseRelease(req *runlogv1.ReleaseLeaseRequest) (*leaseRelease, error) {
	r := &leaseRelease{ReleaseLeaseRequest: req, retryAfter: -1}
	var bad violations
	bad.lease(req.RunId, req.Fence)
	failed, isSkipped := req.Outcome == runlogv1.LeaseOutcome_FAILED, req.Outcome == runlogv1.LeaseOutcome_SKIPPED
	if !failed && !isSkipped && req.Outcome != runlogv1.LeaseOutcome_STARTED {
		bad.Add("outcome", "is required: send STARTED, FAILED or SKIPPED")
	}
	if bad.text("error", req.Error); req.Error != "" && !failed && !isSkipped {
		bad.Add("error", "is sent with FAILED and SKIPPED alone")
	}
	if req.RetryAfter != nil {
		if r.retryAfter = bad.Duration("retryAfter", req.RetryAfter, 0, maxRetryAfter, 0); !failed {
			bad.Add("retryAfter", "is sent with FAILED alone")
		}
	}
	err := s.parseStart(r, &bad)
	if len(bad.Violations) > 0 {
		err = bad.Err()
	}
	return r, err
}

// release proposes a release for the state in which the run is now. A *queue.ChangedError: it is in
// another.
func (s *Service) release(ctx context.Context, r *leaseRelease) (*runlogv1.ReleaseLeaseResponse, error) {
	waiting, q, err := s.callersQueued(ctx, r.RunId)
	if err != nil {
		return nil, err
	}
	if r.Outcome == runlogv1.LeaseOutcome_STARTED {
		return s.releaseStarted(ctx, r, waiting)
	}
	m := &queue.LeaseRelease{RunID: r.RunId, Fence: r.Fence, Outcome: queue.Outcome(r.Outcome)}
	if m.Outcome == queue.Failed && waiting != nil {
		if m.Exhausted = waiting.ExpiresAt != 0 && waiting.LastAttempt(&q.Settings); !m.Exhausted {
			m.RetryAt = s.retryAt(waiting.StartAttempts, r.retryAfter)
		}
	}
	op, err := queue.Release(m)
	if err != nil {
		return nil, err
	}
	var end *storage.Append
	if m.Outcome == queue.Skipped || m.Exhausted {
		if end, err = s.endOf(ctx, r, m.Exhausted, waiting); err != nil {
			return nil, err
		}
	}
	outcome, err := s.executeEnd(ctx, end, op)
	if endedUnder(r.Fence, err) {
		return &runlogv1.ReleaseLeaseResponse{State: runlogv1.QueuedRunState_ENDED, Idempotent: true,
			Position: rpc.FormatPosition(s.node.Store().Incarnation(), outcome.Position)}, nil
	}
	if err != nil {
		return nil, err
	}
	state, repeated, err := queue.DecodeRelease(outcome.Answers[0].Reply)
	resp := &runlogv1.ReleaseLeaseResponse{State: wireState(state), Idempotent: repeated, Position: rpc.FormatPosition(s.node.Store().Incarnation(), outcome.Position)}
	if state == queue.Delayed && !repeated {
		resp.NotBefore = wire.Timestamp(m.RetryAt)
	}
	return resp, err
}

// endedUnder tells whether a release was refused because the run has ended, and the lease of the
// fence was its last one: nothing is left to release.
func endedUnder(fence uint64, err error) bool {
	gone, ok := errors.AsType[*queue.NotQueuedError](err)
	return ok && queue.LeaseOf(gone.Fence) == fence
}

// endOf is the append of the event with which a release ends a run.
func (s *Service) endOf(ctx context.Context, r *leaseRelease, exhausted bool, waiting *queue.Run) (*storage.Append, error) {
	run, err := s.node.Store().Run(r.RunId)
	if err != nil {
		return nil, err
	}
	event := s.cancelled(run, skipped, r.Error)
	if exhausted {
		message := r.Error
		if message == "" {
			message = noStart(waiting.StartAttempts)
		}
		event = s.failed(run, message, waiting.StartAttempts)
	}
	return s.ending(event, "error", caller(ctx))
}

// noStart is the message of a run whose workers say nothing.
func noStart(attempts uint32) string {
	return fmt.Sprintf("no start has succeeded in %d attempts", attempts)
}

// ending is the append of the last event of a run, in the name of an identity. field of the request
// has the text in the event. It needs no fence: its command ends the lease. Its attempt is the
// first whose key no producer has taken (IDM-5).
func (s *Service) ending(event *runlogv1.EventWrite, field string, by contract.Author) (*storage.Append, error) {
	events, err := s.authorityEvents(event, field)
	if err != nil {
		return nil, err
	}
	events[0].AttemptAssigned = true
	return &storage.Append{RunID: event.RunId, Events: events, OnlyNew: true, AppendedBy: by}, nil
}

// executeEnd executes operations, and stores the end of a run behind them, all or none. Without an
// end it is execute.
func (s *Service) executeEnd(ctx context.Context, end *storage.Append, before ...storage.Operation) (storage.Outcome, error) {
	if end == nil {
		return s.execute(ctx, before...)
	}
	for {
		if err := s.node.Store().AssignAttempts(end); err != nil {
			return storage.Outcome{}, err
		}
		op, err := storage.AppendOperation(end)
		if err != nil {
			return storage.Outcome{}, err
		}
		outcome, err := s.execute(ctx, append(slices.Clip(before), op)...)
		if !storage.Overtaken(end, err) || ctx.Err() != nil {
			return outcome, err
		}
	}
}

// retryAt is when a run whose start has failed is leased again.
func (s *Service) retryAt(attempts uint32, after time.Duration) int64 {
	if after < 0 {
		most := maxBackoff
		if doublings := attempts - 1; doublings < 16 {
			most = min(most, firstBackoff<<doublings)
		}
		after = rand.N(most)
	}
	return s.now() + int64(after)
}

// wireState converts a state of a run that was requested.
func wireState(s queue.State) runlogv1.QueuedRunState_Value {
	if s == queue.Ended {
		return runlogv1.QueuedRunState_ENDED
	}
	return runlogv1.QueuedRunState_Value(s)
}
