package enginetest

import (
	"context"
	"encoding/json"
	"fmt"

	"runlog/engine/executor"
	"runlog/proto/contract"
)

// execution is one that was begun in a process.
type execution struct {
	run, step       string
	logical, engine uint32
	process         string
	upstream        map[string]json.RawMessage
	succeeded       bool
	failed          bool // with an error
	stopped         bool // its context had ended
}

// outputOf is the output of a step.
func outputOf(step string, logical uint32) string {
	return fmt.Sprintf(`{"of":%q,"logical":%d}`, step, logical)
}

// executing is the executor of a process.
type executing struct {
	b *bed
	p *Process
}

// Execute notes an execution, and does what the scenario says.
func (x *executing) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.p.ctx, cancel)()
	e := &execution{run: task.RunID, step: task.StepID, logical: task.LogicalAttempt, engine: task.EngineAttempt, process: x.p.Name, upstream: task.Upstream}
	if err := x.p.Act(func() error { return x.b.begin(e) }); err != nil {
		return executor.Result{}, err
	}
	var err error
	if x.b.do != nil {
		err = x.b.do(ctx, task)
	}
	if killed := x.p.Act(func() error { x.b.end(ctx, e, err); return nil }); killed != nil || err != nil {
		if err == nil {
			err = killed
		}
		return executor.Result{}, err
	}
	return executor.Result{Output: json.RawMessage(outputOf(task.StepID, task.LogicalAttempt))}, nil
}

// begin notes an execution that begins, and compares it with what the log has at this moment.
func (b *bed) begin(e *execution) error {
	started, ended := false, ""
	for _, r := range b.events(e.run) {
		if r.step != e.step || r.logical != e.logical {
			continue
		}
		switch r.kind {
		case contract.StepStarted:
			started = true
		case contract.StepCompleted, contract.StepFailed:
			ended = r.kind
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.executions = append(b.executions, e)
	b.change()
	switch {
	case ended != "":
		b.faults[e.run] = append(b.faults[e.run], fmt.Sprintf("%s is executed again after its %s", e, ended))
	case !started:
		b.faults[e.run] = append(b.faults[e.run], fmt.Sprintf("%s is executed before its StepStarted", e))
	}
	return nil
}

func (b *bed) end(ctx context.Context, e *execution, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.change()
	e.succeeded, e.failed, e.stopped = err == nil, err != nil, ctx.Err() != nil
}

// String returns the step with its attempts.
func (e *execution) String() string { return fmt.Sprintf("%s %d.%d", e.step, e.logical, e.engine) }

// of returns the executions of a run.
func (b *bed) of(run string) (list []execution) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.executions {
		if e.run == run {
			list = append(list, *e)
		}
	}
	return list
}
