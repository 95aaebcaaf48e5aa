package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/temporal"
	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/engine/route"
	"runlog/engine/secret"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// lostWorkers is how many engine attempts of a step may end with their workers, beyond the failures
// of its plan. A step that ends each worker must not do so forever.
const lostWorkers = 10

type stepInput struct {
	Run     Scope    `json:"run"`
	Ref     string   `json:"ref"`
	Fence   uint64   `json:"fence,omitempty"`
	Plan    plan.Ref `json:"plan"`
	StepID  string   `json:"stepId"`
	Attempt uint32   `json:"logicalAttemptId"`
	// Cause is the RETRY_STEP of the attempt; empty: there is none.
	Cause string `json:"cause,omitempty"`
	// Upstream has the places of the outputs of earlier steps.
	Upstream map[string]uint64 `json:"upstream,omitempty"`
	// Params is the place of the parameters of the run; 0: it has none.
	Params uint64 `json:"params,omitempty"`
	// Seen: conditions look at the output.
	Seen        bool          `json:"seen,omitempty"`
	MaxFailures int64         `json:"maxFailures"`
	Timeout     time.Duration `json:"timeout"`
}

// stepEnd is how a step has ended; an empty status: it has not.
type stepEnd struct {
	// Attempt is another logical one, in which a step was skipped that had begun; 0: it is not.
	Attempt uint32          `json:"logicalAttemptId,omitempty"`
	Status  plan.Status     `json:"status"`
	Seq     uint64          `json:"seq,omitempty"`
	Output  json.RawMessage `json:"output,omitempty"`
	Fence   uint64          `json:"fence,omitempty"`
}

// work is one engine attempt of a step.
type work struct {
	a      *activities
	in     stepInput
	ledger *ledger
	step   *plan.Step
	at     events.Attempt
	beat   *beat
	began  uint64 // runSeq of StepStarted
	// sure: no earlier attempt may still end the step, and Temporal has not cancelled this one.
	sure bool
}

// executeStep executes a step, and appends its start and its end. It returns a failure that is
// retryable as an error, for as long as the plan lets it be retried.
func (a *activities) executeStep(ctx context.Context, in stepInput) (stepEnd, error) {
	x := &work{a: a, in: in, ledger: a.ledger(in.Run, in.Ref, in.Fence), at: events.Attempt{Logical: in.Attempt, Engine: engineAttempt(ctx)}}
	x.beat = a.startBeat(ctx)
	defer x.beat.stop()
	p, err := a.plan(ctx, in.Plan)
	if err != nil {
		return stepEnd{}, final(err)
	}
	if x.step = p.Step(in.StepID); x.step == nil {
		return stepEnd{}, final(unsupported(fmt.Sprintf("the plan has no step %.100q any more", in.StepID)))
	}
	if n := x.step.Retry.MaxAttempts; n > 0 {
		x.in.MaxFailures = n
	}
	end, err := x.run(ctx)
	end.Fence = x.ledger.fence
	return end, final(err)
}

func (x *work) run(ctx context.Context) (stepEnd, error) {
	kept, cancel := after(ctx)
	defer cancel()
	event, err := x.ledger.named.StepStarted(x.step.ID, x.at, map[string]string{"taskQueue": activity.GetInfo(ctx).TaskQueue})
	if err != nil {
		return stepEnd{}, err
	}
	event.CausedBySignalId = x.in.Cause
	stored, err := x.ledger.append(kept, nil, event)
	if err != nil {
		return stepEnd{}, err
	}
	x.began = stored[0].GetRunSeq()
	if x.sure = !stored[0].GetIdempotent(); !x.sure {
		// An earlier attempt has begun. It may have ended the step, or its worker may go on.
		h, err := x.history(kept)
		if err != nil {
			return stepEnd{}, err
		}
		if end := x.in.endIn(h); end.Status != "" {
			return end, nil
		}
		x.beat.failures = max(x.beat.failures, failuresBefore(h.Step(x.in.StepID), x.at))
	}
	if int64(x.at.Engine) > x.in.MaxFailures+lostWorkers {
		return x.fail(kept, executor.Fail("WORKER_LOST", "%d workers of the step were lost or silent", x.at.Engine-1))
	}
	result, fault := x.execute(ctx)
	switch {
	case fault == nil:
		x.sure = x.sure && ctx.Err() == nil
		return x.complete(kept, result)
	case ctx.Err() != nil:
		// The attempt was cancelled, or timed out and goes on elsewhere, or the worker stops. The
		// workflow knows, and concludes.
		return stepEnd{}, ctx.Err()
	case fault.Kind != executor.Permanent && x.beat.failed(ctx) < x.in.MaxFailures:
		delay := max(fault.RetryAfter, x.step.Retry.Delay(x.beat.failures), time.Millisecond)
		if err := x.retrying(kept, fault, time.Now().Add(delay)); err != nil {
			return stepEnd{}, err
		}
		return stepEnd{}, sdk.NewApplicationErrorWithOptions(fault.Message, fault.Code, sdk.ApplicationErrorOptions{NextRetryDelay: delay})
	}
	return x.fail(kept, fault)
}

// failuresBefore returns how many tries of an attempt the log has as failed, before an engine
// attempt. The details of a heartbeat count them too, but Temporal may not have got the last one.
func failuresBefore(s *replay.Step, at events.Attempt) int64 {
	switch {
	case s == nil || s.Attempt != at.Logical:
		return 0
	case s.Tried >= at.Engine: // The activity was started again after its own StepRetrying.
		return int64(s.Tries) - 1
	}
	return int64(s.Tries)
}

// history folds the events of the run since the attempt began.
func (x *work) history(ctx context.Context) (*history, error) {
	return x.ledger.readAfter(ctx, x.began-1, runlogv1.RunStatus_RUNNING.String(), false)
}

// endIn returns how a history says that the attempt has ended.
func (in *stepInput) endIn(h *history) stepEnd {
	s := h.step(in.StepID)
	if s.attempt() < in.Attempt || s.Status == "" {
		return stepEnd{}
	}
	end := stepEnd{Status: s.Status, Seq: s.Seq}
	if s.attempt() > in.Attempt {
		end.Attempt = s.attempt()
	}
	if in.Seen {
		end.Output = h.Step(in.StepID).Output
	}
	return end
}

// execute executes the step with its secrets and the outputs of earlier steps.
func (x *work) execute(ctx context.Context) (executor.Result, *executor.Error) {
	if err := route.CheckWorker(activity.GetInfo(ctx).TaskQueue, x.in.Run.owner(), x.a.o.Isolation); err != nil {
		return executor.Result{}, executor.Fail(route.CodeForeign, "%v", err)
	}
	scope := secret.Scope{TenantID: x.in.Run.TenantID, EnvironmentID: x.in.Run.EnvironmentID}
	secrets, fault := executor.Resolve(ctx, x.a.o.Secrets, x.step.SecretRefs, scope)
	if fault != nil {
		return executor.Result{}, fault
	}
	upstream, params, err := x.inputs(ctx)
	if err != nil {
		return executor.Result{}, executor.Retry("INPUTS_UNREADABLE", "cannot read the outputs of earlier steps, or the parameters: %v", err)
	}
	result, err := x.a.o.Registry.Execute(ctx, executor.Task{
		RunID: x.in.Run.RunID, StepID: x.step.ID, LogicalAttempt: x.at.Logical, EngineAttempt: x.at.Engine, Executor: x.step.Type,
		Inputs: x.step.Inputs, Upstream: upstream, Parameters: params, Secrets: secrets, Timeout: x.in.Timeout,
	})
	if fault, ok := errors.AsType[*executor.Error](err); ok {
		return result, fault
	}
	most := maxOutput
	if x.in.Seen {
		most = maxSeenOutput
	}
	if len(result.Output) > most {
		return result, executor.Fail(executor.CodeOutputTooLarge, "the output has %d bytes, at most %d: store it as an artifact", len(result.Output), most)
	}
	return result, nil
}

// inputs reads the outputs of earlier steps, and the parameters of the run, from the log.
func (x *work) inputs(ctx context.Context) (upstream map[string]json.RawMessage, params json.RawMessage, err error) {
	upstream = map[string]json.RawMessage{}
	for id, seq := range x.in.Upstream {
		output, err := x.output(ctx, seq)
		if err != nil {
			return nil, nil, err
		}
		if len(output) > 0 {
			upstream[id] = output
		}
	}
	if x.in.Params == 0 {
		return upstream, nil, nil
	}
	p, err := x.ledger.payload(ctx, x.in.Params)
	if params = p.Parameters; len(params) == 0 {
		params = p.Context
	}
	return upstream, params, err
}

// output returns the output of an earlier step, by the place of its StepCompleted.
func (x *work) output(ctx context.Context, seq uint64) (json.RawMessage, error) {
	at := place{x.in.Run.RunID, seq}
	if text, ok := x.a.outputs.get(at); ok {
		return text, nil
	}
	p, err := x.ledger.payload(ctx, seq)
	if err == nil {
		x.a.outputs.put(at, p.Output)
	}
	return p.Output, err
}

// payload is what a step needs of events.
type payload struct {
	Output     json.RawMessage `json:"output"`     // of StepCompleted
	Context    json.RawMessage `json:"context"`    // of RunQueued
	Parameters json.RawMessage `json:"parameters"` // of SignalAccepted
}

// payload reads the payload of an event.
func (l *ledger) payload(ctx context.Context, seq uint64) (p payload, err error) {
	req := &runlogv1.ReadEventsRequest{RunId: l.run.RunID, AfterSeq: seq - 1, Limit: 1, PayloadForm: runlogv1.PayloadForm_JSON}
	for r, err := range l.log.ReadEvents(ctx, req) {
		if err != nil {
			return p, err
		}
		_ = json.Unmarshal(r.GetPayloadJson(), &p) // That of another producer may say nothing.
	}
	return p, nil
}

// complete appends StepCompleted. If the log refuses the result, the step fails.
func (x *work) complete(ctx context.Context, result executor.Result) (stepEnd, error) {
	event, err := x.ledger.named.StepCompleted(x.step.ID, x.at, executor.Completed(result))
	var end stepEnd
	if err == nil {
		end, err = x.finish(ctx, event, plan.Success)
	}
	if why, refused := executor.Refused(err); refused {
		return x.fail(ctx, executor.Fail(executor.CodeOutputInvalid, "the log refuses the output: %s", why))
	}
	if x.in.Seen && end.Status == plan.Success && end.Output == nil {
		end.Output = result.Output
	}
	return end, err
}

// fail appends StepFailed. The text is the executor's, and the log may refuse it, such as for a
// secret.
func (x *work) fail(ctx context.Context, fault *executor.Error) (end stepEnd, err error) {
	for _, e := range []*executor.Error{fault, fault.Untold()} {
		var event *runlogv1.EventWrite
		event, err = x.ledger.named.StepFailed(x.step.ID, x.at, executor.Failed(e))
		if err == nil {
			end, err = x.finish(ctx, event, plan.Failed)
		}
		if _, refused := executor.Refused(err); !refused {
			break
		}
	}
	return end, err
}

// retrying appends that Temporal tries the step again at a time (IDM-11).
func (x *work) retrying(ctx context.Context, fault *executor.Error, at time.Time) error {
	err := x.tell(ctx, executor.Retrying(fault, at))
	if _, refused := executor.Refused(err); refused { // The text is the executor's.
		err = x.tell(ctx, executor.Retrying(fault.Untold(), at))
	}
	return err
}

// tell appends a StepRetrying, unless the log has an end of the attempt or of the run. The activity
// of a workflow that was started again counts from 1: the log may have the event of an earlier one.
func (x *work) tell(ctx context.Context, payload map[string]any) error {
	event, err := x.ledger.named.StepRetrying(x.step.ID, x.at, payload)
	if err != nil {
		return err
	}
	h, err := x.history(ctx)
	for err == nil && x.in.endIn(h).Status == "" && h.ended() == "" {
		last := h.LastSeq
		if _, err = x.ledger.append(ctx, &last, event); !hasReason(err, client.ReasonSequenceConflict) {
			return err
		}
		err = h.readOn(ctx, x.ledger)
	}
	return err
}

// finish appends the end of a step. If another attempt or the workflow may end the step too, it
// appends only if the log has no end, and returns the one that holds.
func (x *work) finish(ctx context.Context, event *runlogv1.EventWrite, status plan.Status) (stepEnd, error) {
	alone, cancel := context.WithDeadline(ctx, x.beat.alone())
	defer cancel()
	if x.sure && alone.Err() == nil {
		stored, err := x.ledger.append(alone, nil, event)
		switch {
		case err != nil && alone.Err() == nil:
			return stepEnd{}, err
		case err == nil && !stored[0].GetIdempotent():
			var p payload
			if status == plan.Success && json.Unmarshal(event.GetPayloadJson(), &p) == nil {
				x.a.outputs.put(place{x.in.Run.RunID, stored[0].GetRunSeq()}, p.Output)
			}
			return stepEnd{Status: status, Seq: stored[0].GetRunSeq()}, nil
		}
		// No answer came in time, one was lost, or another writer has taken the place of the event.
	}
	h, err := x.history(ctx)
	if err != nil {
		return stepEnd{}, err
	}
	return x.ledger.conclude(ctx, &x.in, h, func(*history) (*runlogv1.EventWrite, error) { return event, nil })
}

// conclude appends the end of an attempt of a step if the log has none, and the run has not ended.
// It returns the end that the log has. It reads the history on.
func (l *ledger) conclude(ctx context.Context, in *stepInput, h *history, build func(*history) (*runlogv1.EventWrite, error)) (stepEnd, error) {
	for {
		end := in.endIn(h)
		if end.Status != "" || build == nil || h.ended() != "" {
			return end, nil
		}
		event, err := build(h)
		if err != nil {
			return stepEnd{}, err
		}
		if _, err := l.advance(ctx, h, event); err != nil {
			return stepEnd{}, err
		}
	}
}

type concludeInput struct {
	Step stepInput `json:"step"`
	// Event ends the attempt unless the log has an end of it. nil: only the log is asked.
	Event *Event `json:"event,omitempty"`
}

// concludeStep returns how an attempt has ended whose activity did not say so: what the log says
// holds. If the log has no end, concludeStep appends one. A step that has begun is skipped in its
// next attempt: a StepSkipped is the first event of an attempt (PRJ-8).
func (a *activities) concludeStep(ctx context.Context, in concludeInput) (stepEnd, error) {
	l := a.ledger(in.Step.Run, in.Step.Ref, in.Step.Fence)
	var build func(*history) (*runlogv1.EventWrite, error)
	if in.Event != nil {
		build = func(h *history) (*runlogv1.EventWrite, error) {
			e := *in.Event
			if e.Type == contract.StepSkipped && h.Step(e.StepID) != nil {
				e.Logical = h.step(e.StepID).attempt() + 1
			}
			return l.write(e, engineAttempt(ctx))
		}
	}
	h, err := l.read(ctx)
	if err != nil {
		return stepEnd{}, final(err)
	}
	end, err := l.conclude(ctx, &in.Step, h, build)
	end.Fence = l.fence
	return end, final(err)
}

// beat tells Temporal that an attempt goes on. Its details count the failures of the step, over the
// attempts: Temporal's own count has the workers that were lost too. If the log has more of them
// (failuresBefore), that is the count.
type beat struct {
	began       time.Time
	silence     time.Duration // after which Temporal may take an attempt for lost
	done, ended chan struct{}
	// failures is changed by the goroutine of the activity alone.
	failures int64
}

func (a *activities) startBeat(ctx context.Context) *beat {
	info := activity.GetInfo(ctx)
	b := &beat{began: time.Now(), silence: min(info.HeartbeatTimeout, info.StartToCloseTimeout), done: make(chan struct{}), ended: make(chan struct{})}
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &b.failures); err != nil {
			b.failures = 0
		}
	}
	before := b.failures
	go func() {
		defer close(b.ended)
		tick := time.NewTicker(a.o.Beat)
		defer tick.Stop()
		heard := b.began
		for {
			select {
			case <-b.done:
				return
			case <-tick.C:
			}
			switch err := a.record(ctx, b.silence, before); {
			case err == nil:
				heard = time.Now()
			case passes(err) && time.Since(heard) < b.silence:
				a.o.Logger.DebugContext(ctx, "cannot tell Temporal that an attempt goes on; retrying", "err", err)
			default:
				// The SDK asks again, and cancels the context of the activity with the cause.
				activity.RecordHeartbeat(ctx, before)
			}
		}
	}()
	return b
}

// record tells Temporal once that an attempt goes on. The SDK by itself would cancel the attempt
// after one call that takes longer than Beat, although Temporal waits for the whole silence.
func (a *activities) record(ctx context.Context, silence time.Duration, failures int64) error {
	ctx, cancel := context.WithTimeout(ctx, min(max(silence/10, time.Second), max(silence/2, a.o.Beat)))
	defer cancel()
	return a.o.Temporal.RecordActivityHeartbeat(ctx, activity.GetInfo(ctx).TaskToken, failures)
}

// passes reports whether a heartbeat may still be taken later: Temporal has not said that the
// attempt is to end.
func passes(err error) bool {
	switch serviceerror.ToStatus(err).Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal, codes.Aborted:
		return true
	}
	return false
}

func (b *beat) stop() {
	select {
	case <-b.done:
	default:
		close(b.done)
	}
	<-b.ended
}

// failed counts a failure, and returns how many there are. The details go with the answer of the
// activity.
func (b *beat) failed(ctx context.Context) int64 {
	b.stop()
	b.failures++
	activity.RecordHeartbeat(ctx, b.failures)
	return b.failures
}

// alone is until when Temporal cannot have taken the attempt for lost. Heartbeats that were sent do
// not make it later: Temporal may not have got them.
func (b *beat) alone() time.Time { return b.began.Add(b.silence / 2) }
