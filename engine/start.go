package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// maxErrorBytes is the limit of the error of a release, and leaves room in the payload of an event.
const maxErrorBytes = 4 << 10

// start starts a run that was leased after asked, and ends its lease. ctx bounds only the call of
// the Starter: what the engine has answered is recorded as long as the lease lasts.
func (r *Reconciler) start(ctx context.Context, l *runlogv1.Lease, asked time.Time) (res Result) {
	began := time.Now()
	held := r.hold(context.WithoutCancel(ctx), l, asked)
	defer held.end()
	defer func() {
		r.metrics.ended(res.Status, time.Since(began))
		if res.Status == StatusFailed {
			r.opts.Logger.WarnContext(ctx, "run is not started", "run", l.GetRunId(), "attempt", l.GetStartAttempt(), "err", res.Err)
		}
	}()
	res = Result{RunID: l.GetRunId(), Status: StatusFailed, EngineRunRef: l.GetRun().GetEngineRunRef()}
	// A run that has its reference was started by a reconciler that was killed behind its Start.
	if res.EngineRunRef == "" || r.opts.Continue {
		if res.EngineRunRef, res.Err = r.callStarter(ctx, held); res.Err != nil {
			held.stopped = ctx.Err() != nil || errors.Is(res.Err, ErrStopping)
			held.goesOn = r.opts.Continue && (held.stopped || begun(l.GetRun()))
			res.Status, res.Err = held.refuse(res.Err)
			return res
		}
	}
	if res.Err = held.record(res.EngineRunRef); res.Err == nil {
		res.Status = StatusStarted
	}
	return res
}

// callStarter calls the Starter. Its context ends with ctx, with the lease, and after StartTimeout.
func (r *Reconciler) callStarter(ctx context.Context, held *held) (engineRunRef string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.opts.StartTimeout, fmt.Errorf("the start took longer than %v", r.opts.StartTimeout))
	defer cancel()
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	defer context.AfterFunc(held.ctx, func() { lost(context.Cause(held.ctx)) })()
	ref, err := r.opts.Starter.Start(ctx, StartRequest{
		Run: held.lease.GetRun(), Context: held.lease.GetContext(), Fence: held.lease.GetFence(), Attempt: held.lease.GetStartAttempt(),
	})
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil && !errors.Is(err, cause):
		return "", fmt.Errorf("%w: %w", err, cause)
	case err == nil && ref == "":
		return "", errors.New("engine: the Starter returned no reference of the engine's run")
	}
	return ref, err
}

// record releases the lease of a run that the engine has, and stores its reference and RunStarted
// with it. If the run has ended, it stores nothing behind the end.
func (h *held) record(engineRunRef string) error {
	started, err := Started(h.lease.GetRun(), engineRunRef)
	if err != nil {
		return h.failed(err)
	}
	started.EmittedBy = h.worker
	// The end of a run ends its lease, so that a renewal may have been refused since. Whether the
	// lease was lost to another worker, the log decides by the fence.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), h.ttl)
	defer cancel()
	_, err = h.client.ReleaseLease(ctx, &runlogv1.ReleaseLeaseRequest{
		RunId: h.lease.GetRunId(), Fence: h.lease.GetFence(), Outcome: runlogv1.LeaseOutcome_STARTED,
		EngineRunRef: &engineRunRef, Events: []*runlogv1.EventWrite{started},
	})
	switch {
	case err == nil:
		return nil
	case h.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", err, context.Cause(h.ctx))
	case refused(err):
		return h.failed(err)
	default:
		return err // The next lease tells what is stored.
	}
}

// refused reports whether the log refuses a write for good, though the lease lasts.
func refused(err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Final() && e.Reason != client.ReasonLeaseLost
}

// append appends an event to a run that has not ended.
func (h *held) append(event *runlogv1.EventWrite) error {
	fence, last := h.lease.GetFence(), h.lease.GetRun().GetLastSeq()
	event.EmittedBy = h.worker
	for {
		_, err := h.client.AppendEvents(h.ctx, &runlogv1.AppendEventsRequest{
			RunId: h.lease.GetRunId(), Events: []*runlogv1.EventWrite{event}, Fence: &fence, ExpectedLastSeq: &last,
		})
		if !hasReason(err, client.ReasonSequenceConflict) {
			return err
		}
		// Another event came first. If it is terminal, the renewal is refused. If a terminal one
		// comes after the renewal, the next append is refused again.
		now := lastSeq(err)
		if now == last {
			return err // no other event came first
		}
		last = now
		if err := h.renew(h.ctx); err != nil {
			return err
		}
	}
}

// refuse ends the lease of a run that the Starter has not started, and returns its status.
func (h *held) refuse(cause error) (Status, error) {
	if permanent, ok := errors.AsType[*PermanentError](cause); ok {
		event, err := Failed(h.lease.GetRun(), permanent)
		if err == nil {
			err = h.append(event) // It ends the lease too.
		}
		switch {
		case err == nil:
			return StatusFailed, cause
		case refused(err): // Such as the text of the cause.
			return StatusFailed, h.failed(fmt.Errorf("%w; cannot append RunFailed: %w", cause, err))
		default:
			return StatusFailed, fmt.Errorf("%w; cannot append RunFailed: %w", cause, err)
		}
	}
	if errors.Is(cause, ErrEnded) {
		return StatusFailed, cause
	}
	if !errors.Is(cause, ErrSkip) {
		return StatusFailed, h.failed(cause)
	}
	if err := h.release(runlogv1.LeaseOutcome_SKIPPED, cause.Error()); err != nil {
		return StatusFailed, fmt.Errorf("%w; cannot release the lease: %w", cause, err)
	}
	return StatusSkipped, cause
}

// begun reports whether the engine has worked on a run under an earlier lease.
func begun(run *runlogv1.Run) bool {
	return run.GetStatus() != runlogv1.RunStatus_PENDING && run.GetStatus() != runlogv1.RunStatus_APPROVED
}

// failed puts the run back into its queue, and returns why.
func (h *held) failed(cause error) error {
	if h.ctx.Err() != nil {
		return cause // there is no lease to release
	}
	if h.goesOn {
		if err := h.lapse(); err != nil {
			return fmt.Errorf("%w; cannot shorten the lease: %w", cause, err)
		}
		return cause
	}
	if err := h.release(runlogv1.LeaseOutcome_FAILED, cause.Error()); err != nil {
		return fmt.Errorf("%w; cannot release the lease: %w", cause, err)
	}
	return cause
}

// release ends the lease of a run that is not started. text says why, for people.
func (h *held) release(outcome runlogv1.LeaseOutcome_Value, text string) error {
	req := &runlogv1.ReleaseLeaseRequest{RunId: h.lease.GetRunId(), Fence: h.lease.GetFence(), Outcome: outcome, Error: short(text)}
	_, err := h.client.ReleaseLease(h.ctx, req)
	if text != "" && refused(err) { // The text may be: it is of the engine.
		req.Error = "the log refuses the text of the error; see the log lines of " + h.worker
		_, err = h.client.ReleaseLease(h.ctx, req)
	}
	return err
}

// short cuts the text of an error to what the log takes.
func short(text string) string {
	text = strings.ToValidUTF8(text, "�")
	if len(text) > maxErrorBytes {
		text = strings.ToValidUTF8(text[:maxErrorBytes-3], "") + "…"
	}
	return text
}

func hasReason(err error, reason client.Reason) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Reason == reason
}
