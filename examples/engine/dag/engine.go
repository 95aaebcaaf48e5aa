// Package dag is a workflow engine in two files: engine.go executes plans, and log.go records what
// happens in runlog and reads it back.
package dag

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"runlog/client"
	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
)

// Plan is what runs execute: steps, of which some come after others.
type Plan struct {
	ID, Version                  string
	Tenant, Project, Environment string
	Steps                        []Step // Each after the steps that it names.
}

// Step is one step of a plan.
type Step struct {
	ID      string
	After   []string // The steps that must succeed before.
	Retries uint32   // How often the plan tries a failed step again.
	// Do does the work. It may be called again for the same attempt, if the engine was killed
	// during the call or before the result was recorded.
	Do func(ctx context.Context, attempt uint32) error
}

// Run executes a run of the plan, or the rest of it: what the log says is done is not done again.
// It returns the state of the run at its end. One engine at a time may execute a run.
func Run(ctx context.Context, c *client.Client, plan *Plan, run string) (*runlogv1.RunSnapshot, error) {
	if err := plan.check(); err != nil {
		return nil, err
	}
	appender, err := c.NewAppender(client.AppenderOptions{})
	if err != nil {
		return nil, err
	}
	defer appender.Close()
	l := newLog(c, appender, plan, run)
	// A duplicate, if the run exists.
	if err := l.record(ctx, "RunStarted", "", first, map[string]any{"engineType": "example"}); err != nil {
		return nil, err
	}
	before, err := l.snapshot(ctx)
	if err != nil || terminal(before) {
		return before, err
	}
	failed, err := plan.execute(ctx, l, before)
	if err != nil {
		return nil, err
	}
	if failed == "" {
		err = l.record(ctx, "RunCompleted", "", first, nil)
	} else {
		err = l.record(ctx, "RunFailed", "", first, map[string]any{"rootCause": map[string]any{"message": failed + " failed", "stepId": failed}})
	}
	if err != nil {
		return nil, err
	}
	return l.snapshot(ctx)
}

// check refuses a plan with a step before those that it comes after, and so every circle.
func (p *Plan) check() error {
	before := map[string]bool{}
	for _, s := range p.Steps {
		for _, id := range s.After {
			if !before[id] {
				return fmt.Errorf("step %q comes after %q: list that one before it", s.ID, id)
			}
		}
		before[s.ID] = true
	}
	return nil
}

func terminal(s *runlogv1.RunSnapshot) bool {
	switch s.GetStatus() {
	case runlogv1.RunStatus_COMPLETED, runlogv1.RunStatus_FAILED, runlogv1.RunStatus_CANCELLED:
		return true
	}
	return false
}

// node is a step in one execution. Its fields are set once done is closed.
type node struct {
	done chan struct{}
	ok   bool
	err  error // the step has no outcome
}

// execute executes the steps, each as soon as those before it are done. It returns a step that has
// failed, if there is one.
func (p *Plan) execute(ctx context.Context, l *log, before *runlogv1.RunSnapshot) (failed string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := map[string]*runlogv1.StepSnapshot{}
	for _, s := range before.GetSteps() {
		found[s.GetStepId()] = s
	}
	nodes := map[string]*node{}
	var all sync.WaitGroup
	for _, s := range p.Steps {
		n := &node{done: make(chan struct{})}
		var after []*node
		for _, id := range s.After {
			after = append(after, nodes[id])
		}
		nodes[s.ID] = n
		all.Go(func() {
			defer close(n.done)
			if n.ok, n.err = s.execute(ctx, l, after, found[s.ID]); n.err != nil {
				cancel() // the other steps wait for no result
			}
		})
	}
	all.Wait()
	var errs []error
	for _, s := range p.Steps {
		n := nodes[s.ID]
		errs = append(errs, n.err)
		if n.err == nil && !n.ok && failed == "" {
			failed = s.ID
		}
	}
	return failed, errors.Join(errs...)
}

// execute waits for the steps before this one and executes it, from where the log says it is. It
// reports whether the step has succeeded.
func (s *Step) execute(ctx context.Context, l *log, after []*node, found *runlogv1.StepSnapshot) (ok bool, err error) {
	for _, n := range after {
		<-n.done
		if n.err != nil {
			return false, n.err
		}
		if !n.ok {
			return false, l.record(ctx, "StepSkipped", s.ID, first, map[string]any{"reason": "a step before it has not succeeded"})
		}
	}
	a := first
	switch found.GetStatus() {
	case runlogv1.StepStatus_SUCCESS:
		return true, nil
	case runlogv1.StepStatus_RUNNING: // The engine was killed: the decision is the same.
		a = events.Attempt{Logical: found.GetLogicalAttemptId(), Engine: found.GetEngineAttemptId() + 1}
	case runlogv1.StepStatus_FAILED: // The next attempt is a new decision, of the plan.
		a = events.Attempt{Logical: found.GetLogicalAttemptId() + 1, Engine: 1}
	}
	for ; a.Logical <= 1+s.Retries; a = (events.Attempt{Logical: a.Logical + 1, Engine: 1}) {
		if err := l.record(ctx, "StepStarted", s.ID, a, nil); err != nil {
			return false, err
		}
		failure := s.Do(ctx, a.Logical)
		if ctx.Err() != nil {
			return false, fmt.Errorf("stopped during %s: %w", s.ID, ctx.Err())
		}
		if failure == nil {
			return true, l.record(ctx, "StepCompleted", s.ID, a, nil)
		}
		if err := l.record(ctx, "StepFailed", s.ID, a, map[string]any{"error": map[string]any{"message": failure.Error()}}); err != nil {
			return false, err
		}
	}
	return false, nil
}
