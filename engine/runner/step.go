package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"runlog/client/events"
	"runlog/client/watcher"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/engine/secret"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// maxOutput leaves room in a payload.
	maxOutput = 48 << 10
	// defaultAttempts is that of plan.Retry.
	defaultAttempts = 3
	// watchAfter is how long a step takes before the runner looks for signals meanwhile.
	watchAfter = 200 * time.Millisecond
)

// perform executes a step that has its StepStarted, with its retries, and stores its end. Its
// engine attempts begin with the first one. A step that an operator wants skipped meanwhile is
// skipped, unless it has succeeded.
func (x *execution) perform(ctx context.Context, s *plan.Step, first uint32) error {
	logical := x.state.Attempt(s.ID)
	result, at, failed, err := x.attempts(ctx, s, events.Attempt{Logical: logical, Engine: first})
	if ctx.Err() != nil {
		return context.Cause(ctx) // Another worker executes it again.
	}
	if err != nil {
		return err
	}
	if failed == nil && len(result.Output) > maxOutput {
		failed = executor.Fail(executor.CodeOutputTooLarge, "the output has %d bytes, at most %d: store it as an artifact", len(result.Output), maxOutput)
	}
	if failed == nil {
		err = x.complete(ctx, s, at, result)
		if why, refused := executor.Refused(err); refused {
			failed = executor.Fail(executor.CodeOutputInvalid, "the log refuses the output: %s", why)
		} else if err != nil {
			return err
		}
	}
	if failed != nil {
		holds := func() bool { return x.runs(s.ID, logical) && !x.skips(s.ID) }
		if err := x.storeError(ctx, failed, holds, func(e *executor.Error) (*runlogv1.EventWrite, error) {
			return x.named.StepFailed(s.ID, at, executor.Failed(e))
		}); err != nil {
			return err
		}
		if err := x.skip(ctx, s.ID); err != nil {
			return err
		}
	}
	if x.walk == nil {
		return nil // Another writer may have ended the step before: the log has its end.
	}
	end, ended := x.state.Step(s.ID).Result()
	if !ended {
		return fmt.Errorf("runner: step %s of run %s does not end in the log: %s", s.ID, x.named.ID, x.state.Step(s.ID).Status)
	}
	return x.walk.Done(s.ID, end)
}

// complete stores the end of a step that has succeeded, together with the start of the step that is
// next: one append for each step instead of two.
func (x *execution) complete(ctx context.Context, s *plan.Step, at events.Attempt, result executor.Result) error {
	e, err := x.named.StepCompleted(s.ID, at, executor.Completed(result))
	if err != nil {
		return err
	}
	following, err := x.following(s.ID, plan.Result{Status: plan.Success, Output: replay.OutputOf(e.GetPayloadJson())})
	if err != nil {
		return err
	}
	return x.append(ctx, func() bool { return x.runs(s.ID, at.Logical) }, e, following...)
}

// following returns the start of the step that is next once a step has ended, as far as the log is
// known. None begins at once if an operator asks for something, if another step is under way, which
// comes first, or if more is to be decided. It never ends the run: if the end of the step is in the
// log without effect (see inconsistent), the log takes what follows, and the run must fail.
func (x *execution) following(stepID string, end plan.Result) ([]*runlogv1.EventWrite, error) {
	if x.walk == nil || x.walk.UnderWay() > 1 || x.stopping.Load() || x.state.Asks() {
		return nil, nil
	}
	d := x.walk.Following(stepID, end)
	if d.Kind != plan.Run || x.state.Step(d.Step.ID) != nil {
		return nil, nil
	}
	e, err := x.named.StepStarted(d.Step.ID, once, nil)
	return []*runlogv1.EventWrite{e}, err
}

// runs reports whether a logical attempt of a step is being executed.
func (x *execution) runs(stepID string, logical uint32) bool {
	s := x.state.Step(stepID)
	return s.Attempt == logical && s.Status == replay.Running
}

// storeError stores an event about an error. The text is the executor's, and the log may refuse it,
// such as for a secret.
func (x *execution) storeError(ctx context.Context, e *executor.Error, holds func() bool, of func(*executor.Error) (*runlogv1.EventWrite, error)) error {
	err := x.writeWhile(ctx, holds, func() (*runlogv1.EventWrite, error) { return of(e) })
	if _, refused := executor.Refused(err); !refused {
		return err
	}
	return x.writeWhile(ctx, holds, func() (*runlogv1.EventWrite, error) { return of(e.Untold()) })
}

// attempts executes a step until an attempt succeeds or fails for good, and returns the last one.
// Each other one that has failed gets its StepRetrying (IDM-11). The error is that of the log.
func (x *execution) attempts(ctx context.Context, s *plan.Step, first events.Attempt) (
	result executor.Result, last events.Attempt, failed *executor.Error, err error,
) {
	limited, stop := context.WithCancel(ctx)
	defer stop()
	after := x.state.LastSeq
	watching := time.AfterFunc(watchAfter, func() { x.watchSignals(limited, s.ID, after, stop) })
	defer watching.Stop()
	most := int64(defaultAttempts)
	if s.Retry.MaxAttempts > 0 {
		most = s.Retry.MaxAttempts
	}
	upstream := x.walk.Upstream(s) // The walk may end with what comes meanwhile.
	next := x.state.Step(s.ID).RetryAt
	last = first
	for n := int64(1); ; n++ {
		select {
		case <-time.After(time.Until(next)):
		case <-limited.Done():
		}
		result, err = x.attempt(limited, s, last, upstream)
		failed, _ = errors.AsType[*executor.Error](err)
		if failed == nil || failed.Kind != executor.Retryable || n == most || limited.Err() != nil {
			return result, last, failed, nil
		}
		next = time.Now().Add(max(failed.RetryAfter, s.Retry.Delay(n)))
		err = x.storeError(ctx, failed, func() bool { return x.runs(s.ID, last.Logical) }, func(e *executor.Error) (*runlogv1.EventWrite, error) {
			return x.named.StepRetrying(s.ID, last, executor.Retrying(e, next))
		})
		if err != nil || !x.runs(s.ID, last.Logical) {
			return result, last, failed, err
		}
		last.Engine++
	}
}

func (x *execution) attempt(ctx context.Context, s *plan.Step, at events.Attempt, upstream map[string]json.RawMessage) (executor.Result, error) {
	scope := secret.Scope{TenantID: x.named.Tenant, EnvironmentID: x.named.Environment}
	secrets, fault := executor.Resolve(ctx, x.o.Secrets, s.SecretRefs, scope)
	if fault != nil {
		return executor.Result{}, fault
	}
	return x.o.Executors.Execute(ctx, executor.Task{
		RunID: x.named.ID, StepID: s.ID, LogicalAttempt: at.Logical, EngineAttempt: at.Engine, Executor: s.Type, Inputs: s.Inputs,
		Upstream: upstream, Parameters: x.state.Parameters(), Secrets: secrets, Timeout: s.Timeout,
	})
}

// watchSignals ends a step that an operator wants skipped, or whose run is to be cancelled.
func (x *execution) watchSignals(ctx context.Context, stepID string, after uint64, stop func()) {
	for e, err := range watcher.Events(ctx, x.o.Client, x.named.ID, after, "") {
		if err != nil {
			return // The runner sees the signal after the step.
		}
		switch signalOf(e) {
		case contract.SignalCancel, contract.SignalEmergencyStop:
		case contract.SignalSkipStep:
			if e.GetStepId() != stepID {
				continue
			}
		default:
			continue
		}
		stop()
		return
	}
}

// signalOf returns the type of the signal that an event has accepted. Empty: it is another event.
func signalOf(e watcher.Event) string {
	var p struct{ SignalType string }
	body := e.GetPayloadJson()
	if e.GetPayload() != nil {
		body, _ = e.GetPayload().MarshalJSON() // It was JSON.
	}
	if e.GetEventType() != contract.SignalAccepted || json.Unmarshal(body, &p) != nil {
		return ""
	}
	return p.SignalType
}
