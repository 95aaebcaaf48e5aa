package temporal

import (
	"context"
	"errors"
	"fmt"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"

	"runlog/engine"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Sweeper ends the runs whose workflows Temporal has ended without their code: those that were
// terminated, or that took too long. It starts the workflows again that Temporal has lost.
type Sweeper struct {
	Engine *Engine
	Runs   engine.Runs
	// Tenant, Project and Environment are those of the runs; the fields from the first empty one on
	// are empty, and mean any.
	Tenant, Project, Environment string
	// Grace is how long a workflow has ended before the log is told. Steps that are under way
	// notice meanwhile. 0: twice the Heartbeat of the Engine's Settings.
	Grace time.Duration
}

// Sweep looks at each run of the engine that goes on, once.
func (s *Sweeper) Sweep(ctx context.Context) (engine.Swept, error) { return s.sweeps().Sweep(ctx) }

// Run sweeps at intervals until ctx ends.
func (s *Sweeper) Run(ctx context.Context, every time.Duration) { s.sweeps().Run(ctx, every) }

func (s *Sweeper) sweeps() *engine.Sweeps {
	return &engine.Sweeps{Runs: s.Runs, Tenant: s.Tenant, Project: s.Project, Environment: s.Environment, Look: s.look, Logger: s.Engine.o.Logger,
		Owns: func(run *runlogv1.Run) bool {
			return run.GetEngineRunRef() == refOf(s.Engine.o.Namespace, run.GetRunId())
		}}
}

func (s *Sweeper) look(ctx context.Context, run *runlogv1.Run, swept *engine.Swept) error {
	d, err := s.Engine.o.Temporal.DescribeWorkflowExecution(ctx, run.GetRunId(), "")
	if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
		// Temporal has lost it. The new workflow goes on where the log ends.
		if _, err := s.Engine.start(ctx, run, plan.RefOf(run), 0); err != nil {
			return err
		}
		swept.Restarted = append(swept.Restarted, run.GetRunId())
		return nil
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
	ended, err := s.end(ctx, run, info)
	if ended {
		swept.Ended = append(swept.Ended, run.GetRunId())
	}
	return err
}

// end appends the end of a run whose workflow has ended, if the log has none.
func (s *Sweeper) end(ctx context.Context, run *runlogv1.Run, info *workflowpb.WorkflowExecutionInfo) (ended bool, err error) {
	l := s.Engine.activities.ledger(Scope{run.GetRunId(), run.GetTenantId(), run.GetProjectId(), run.GetEnvironmentId(),
		run.GetPlanRef().GetPlanId(), run.GetPlanRef().GetPlanVersion()}, refOf(s.Engine.o.Namespace, run.GetRunId()), 0)
	h, err := l.read(ctx)
	if err != nil {
		return false, err
	}
	for h.ended() == "" {
		w, err := l.write(endOf(info, h.signals), 1)
		if err != nil {
			return false, err
		}
		if ended, err = l.advance(ctx, h, w); err != nil {
			return false, err
		}
	}
	return ended, nil
}

// endOf returns the end of a run from that of its workflow. A CANCEL that the log has accepted is
// followed.
func endOf(info *workflowpb.WorkflowExecutionInfo, signals []Signal) Event {
	how := stateOf[info.GetStatus()]
	text := fmt.Sprintf("the workflow in Temporal is %s, and its code could not say why", info.GetStatus())
	for _, x := range signals {
		if x.Type == signalCancel || x.Type == signalStop {
			return Event{Type: contract.RunCancelled, Logical: 1, Cause: x.ID, Payload: object("reason", text)}
		}
	}
	if how == engine.RunCancelled {
		return Event{Type: contract.RunCancelled, Logical: 1, Payload: object("reason", text)}
	}
	return Event{Type: contract.RunFailed, Logical: 1, Payload: raw("error", failureJSON("ENGINE_"+codeOf[info.GetStatus()], text))}
}

var codeOf = map[enums.WorkflowExecutionStatus]string{
	enums.WORKFLOW_EXECUTION_STATUS_TERMINATED: "TERMINATED", enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: "TIMED_OUT",
	enums.WORKFLOW_EXECUTION_STATUS_FAILED: "FAILED", enums.WORKFLOW_EXECUTION_STATUS_COMPLETED: "ENDED",
}
