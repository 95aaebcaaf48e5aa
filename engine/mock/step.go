package mock

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"runlog/client/events"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// defaultAttempts is how often a step is executed whose plan does not say.
const defaultAttempts = 3

// ended is how an execution of a step has ended.
type ended struct {
	at     events.Attempt
	result executor.Result
	fault  *executor.Error
	// again is when the step is executed again. Zero: it is not.
	again time.Time
}

// perform executes a step that has its StepStarted, with its retries, and appends its end. While it
// does, it follows what is asked of the run.
func (x *execution) perform(ctx context.Context, s *plan.Step) error {
	logical := x.state.Step(s.ID).Attempt
	walk, err := x.state.Walk(x.plan)
	if err != nil {
		return err
	}
	x.tell(1)
	limited, stop := context.WithCancel(ctx)
	defer stop()
	tries, done := make(chan ended), make(chan ended, 1)
	go func() { done <- x.attempts(limited, s, logical, walk.Upstream(s), tries) }()
	for {
		var err error
		select {
		case <-x.job.poked:
			err = x.catchUp(ctx)
		case try := <-tries:
			err = x.end(ctx, s.ID, try)
		case end := <-done:
			if ctx.Err() != nil {
				return context.Cause(ctx) // Another worker executes it again.
			}
			if limited.Err() != nil {
				return nil // What has ended it comes next.
			}
			return x.end(ctx, s.ID, end)
		}
		if err != nil {
			stop()
			<-done
			return err
		}
		if !x.wanted(s.ID, logical) {
			stop()
		}
	}
}

// wanted reports whether an execution of a step is to go on.
func (x *execution) wanted(stepID string, logical uint32) bool {
	s := x.state.Step(stepID)
	_, cancelled := x.state.Pending(contract.SignalEmergencyStop, contract.SignalCancel)
	_, skipped := x.state.Asked(stepID)
	return !cancelled && !skipped && x.engine.cancelled(x.job) == nil && !x.state.Ended() && s.Attempt == logical && s.Status == replay.Running
}

// end appends how a try of a step has ended, unless the log has the end of the step. A try that is
// followed by another one does not end the step (IDM-11).
func (x *execution) end(ctx context.Context, stepID string, end ended) error {
	for {
		var e *runlogv1.EventWrite
		var err error
		switch {
		case end.fault == nil:
			e, err = x.named.StepCompleted(stepID, end.at, executor.Completed(end.result))
		case !end.again.IsZero():
			e, err = x.named.StepRetrying(stepID, end.at, executor.Retrying(end.fault, end.again))
		default:
			e, err = x.named.StepFailed(stepID, end.at, executor.Failed(end.fault))
		}
		if err != nil {
			return err
		}
		appended, err := x.append(ctx, e)
		if why, refused := executor.Refused(err); refused && end.fault == nil {
			end.fault = executor.Fail(executor.CodeOutputInvalid, "the log refuses the output: %s", why)
			continue
		}
		if err != nil || appended || !x.wanted(stepID, end.at.Logical) {
			return err
		}
	}
}

// attempts executes a step until an attempt succeeds or fails for good. It hands over each one that
// it repeats.
func (x *execution) attempts(ctx context.Context, s *plan.Step, logical uint32, upstream map[string]json.RawMessage, tries chan<- ended) ended {
	most := int64(defaultAttempts)
	if s.Retry.MaxAttempts > 0 {
		most = s.Retry.MaxAttempts
	}
	wait := s.Retry.Initial
	for n := int64(1); ; n++ {
		end := ended{at: events.Attempt{Logical: logical, Engine: x.engine.attempt(x.job, s.ID, logical)}}
		if len(s.SecretRefs) > 0 {
			end.fault = executor.Fail(executor.CodeSecretMissing, "the mock engine resolves no secrets")
			return end
		}
		var err error
		end.result, err = x.o.Executors.Execute(ctx, executor.Task{
			RunID: x.run.GetRunId(), StepID: s.ID, LogicalAttempt: logical, EngineAttempt: end.at.Engine, Executor: s.Type, Inputs: s.Inputs,
			Upstream: upstream, Timeout: s.Timeout,
		})
		end.fault, _ = errors.AsType[*executor.Error](err)
		if end.fault == nil || end.fault.Kind != executor.Retryable || n == most || ctx.Err() != nil {
			return end
		}
		end.again = time.Now().Add(max(wait, end.fault.RetryAfter))
		select {
		case tries <- end:
		case <-ctx.Done():
		}
		select {
		case <-time.After(time.Until(end.again)):
		case <-ctx.Done():
		}
		if wait *= 2; s.Retry.Max > 0 {
			wait = min(wait, s.Retry.Max)
		}
	}
}
