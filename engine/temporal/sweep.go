package temporal

import (
	"context"
	"errors"
	"fmt"
	"time"

	enums "go.temporal.io/api/enums/v1"

	"runlog/engine"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Runs lists the runs of the log and changes their references, as a client.Client does.
type Runs interface {
	engine.Runs
	UpdateRun(context.Context, *runlogv1.UpdateRunRequest) (*runlogv1.UpdateRunResponse, error)
}

// Sweeper ends the runs whose workflows Temporal has ended without their code: those that were
// terminated, or that took too long.
type Sweeper struct {
	Engine *Engine
	Runs   Runs
	// Tenant, Project and Environment are those of the runs; the fields from the first empty one on
	// are empty, and mean any.
	Tenant, Project, Environment string
	// Grace is how long a workflow has ended before the log is told. Steps that are under way
	// notice meanwhile. 0: twice the Heartbeat of the Engine's Settings.
	Grace time.Duration
	// Adopt starts the workflows again that Temporal does not have. An operator sets it, and knows
	// that no other Temporal server has them: that one would execute their steps too.
	Adopt bool
}

// Sweep looks at each run of the engine that goes on, once. Its error has a *LostError for each run
// whose workflow is not there.
func (s *Sweeper) Sweep(ctx context.Context) (engine.Swept, error) { return s.sweeps().Sweep(ctx) }

// Run sweeps at intervals until ctx ends.
func (s *Sweeper) Run(ctx context.Context, every time.Duration) { s.sweeps().Run(ctx, every) }

func (s *Sweeper) sweeps() *engine.Sweeps {
	return &engine.Sweeps{Runs: s.Runs, Tenant: s.Tenant, Project: s.Project, Environment: s.Environment, Look: s.look, Logger: s.Engine.o.Logger,
		Owns: func(run *runlogv1.Run) bool { _, ok := s.Engine.address(run.GetEngineRunRef()); return ok }}
}

func (s *Sweeper) look(ctx context.Context, run *runlogv1.Run, swept *engine.Swept) error {
	d, err := s.Engine.find(ctx, run.GetEngineRunRef(), createdAt(run))
	if errors.Is(err, engine.ErrNoRun) {
		return s.lost(ctx, run, swept, err)
	}
	if err != nil {
		return err
	}
	info := d.GetWorkflowExecutionInfo()
	grace := s.Grace
	if grace == 0 {
		grace = 2 * s.Engine.o.Settings.Heartbeat
	}
	if info.GetCloseTime() == nil || info.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW ||
		time.Since(info.GetCloseTime().AsTime()) < grace {
		return nil
	}
	_, err = s.end(ctx, run, swept, func(signals []Signal) *Event { return endOf(info.GetStatus(), signals) })
	return err
}

// lost starts a workflow again that is not there, if the operator says so. If no other Temporal
// server may have it, a run that is to be cancelled ends, and so does one whose id is taken.
func (s *Sweeper) lost(ctx context.Context, run *runlogv1.Run, swept *engine.Swept, cause error) error {
	id, err := s.Engine.namespaceID(ctx)
	if err != nil {
		return err
	}
	foreign, taken := errors.AsType[*ForeignError](cause)
	at, _ := s.Engine.address(run.GetEngineRunRef())
	if at.namespaceID == id {
		ended, err := s.end(ctx, run, swept, func(signals []Signal) *Event {
			event := cancelled(signals, "there is no workflow of the run in Temporal")
			if event == nil && taken {
				event = failed(codeForeign, foreign.Error())
			}
			return event
		})
		if err != nil || ended {
			return err
		}
	}
	if taken {
		return cause
	}
	if !s.Adopt {
		return &LostError{Ref: run.GetEngineRunRef(), Namespace: s.Engine.o.Namespace, NamespaceID: id, Here: at.namespaceID == id}
	}
	ref := refOf(id, s.Engine.o.Namespace, s.Engine.o.Prefix+run.GetRunId())
	if ref != run.GetEngineRunRef() {
		// Of several that adopt the run, one does.
		if _, err := s.Runs.UpdateRun(ctx, &runlogv1.UpdateRunRequest{RunId: run.GetRunId(), EngineRunRef: &ref,
			PreviousEngineRunRef: run.GetEngineRunRef()}); err != nil {
			return err
		}
	}
	// The new workflow goes on where the log ends.
	if err := s.Engine.start(ctx, run, ref, plan.RefOf(run), 0); err != nil {
		return err
	}
	swept.Restarted = append(swept.Restarted, run.GetRunId())
	return nil
}

// end appends an end of a run that has none, if the signals that are not obeyed yet give one.
func (s *Sweeper) end(ctx context.Context, run *runlogv1.Run, swept *engine.Swept, endOf func([]Signal) *Event) (ended bool, err error) {
	l := s.Engine.activities.ledger(scopeOf(run), run.GetEngineRunRef(), 0)
	h, err := l.read(ctx)
	if err != nil {
		return false, err
	}
	for h.ended() == "" {
		event := endOf(h.signals)
		if event == nil {
			return false, nil
		}
		w, err := l.write(*event, 1)
		if err != nil {
			return false, err
		}
		stored, err := l.advance(ctx, h, w)
		if err != nil {
			return false, err
		}
		if stored {
			swept.Ended = append(swept.Ended, run.GetRunId())
		}
	}
	return true, nil
}

// endOf returns the end of a run from that of its workflow. A CANCEL that the log has accepted is
// followed.
func endOf(status enums.WorkflowExecutionStatus, signals []Signal) *Event {
	text := fmt.Sprintf("the workflow in Temporal is %s, and its code could not say why", status)
	if event := cancelled(signals, text); event != nil {
		return event
	}
	if stateOf[status] == engine.RunCancelled {
		return &Event{Type: contract.RunCancelled, Logical: 1, Payload: object("reason", text)}
	}
	return failed("ENGINE_"+codeOf[status], text)
}

func failed(code, text string) *Event {
	return &Event{Type: contract.RunFailed, Logical: 1, Payload: raw("error", failureJSON(code, text))}
}

// cancelled returns the end that an accepted CANCEL gives a run; nil: there is none.
func cancelled(signals []Signal, text string) *Event {
	for _, x := range signals {
		if x.Type == signalCancel || x.Type == signalStop {
			return &Event{Type: contract.RunCancelled, Logical: 1, Cause: x.ID, Payload: object("reason", text)}
		}
	}
	return nil
}

var codeOf = map[enums.WorkflowExecutionStatus]string{
	enums.WORKFLOW_EXECUTION_STATUS_TERMINATED: "TERMINATED", enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: "TIMED_OUT",
	enums.WORKFLOW_EXECUTION_STATUS_FAILED: "FAILED", enums.WORKFLOW_EXECUTION_STATUS_COMPLETED: "ENDED",
}
