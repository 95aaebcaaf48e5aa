package temporal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"

	"runlog/engine"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Runs lists the runs of the log, as a client.Client does.
type Runs interface {
	ListRuns(context.Context, *runlogv1.ListRunsRequest) iter.Seq2[*runlogv1.Run, error]
}

// Sweeper ends the runs whose workflows Temporal has ended without their code: those that were
// terminated, or that took too long. It starts the workflows again that Temporal has lost.
type Sweeper struct {
	Engine *Engine
	Runs   Runs
	// Tenant, Project and Environment are those of the runs; the fields from the first empty one on
	// are empty, and mean any.
	Tenant, Project, Environment string
	// Grace is how long a workflow has ended before the log is told. Steps that are under way
	// notice meanwhile. 0: twice the Heartbeat of the Engine's Settings.
	Grace time.Duration
}

// Swept is what a sweep has done.
type Swept struct {
	// Ended are the runs that got their terminal event, and Restarted those whose workflows were
	// started again.
	Ended, Restarted []string
	// Looked counts the runs that go on.
	Looked int
}

// Sweep looks at each run of this engine that goes on, once. One run that cannot be looked at does
// not hide the others: its error is joined to those of others.
func (s *Sweeper) Sweep(ctx context.Context) (swept Swept, err error) {
	req := &runlogv1.ListRunsRequest{TenantId: s.Tenant, ProjectId: s.Project, EnvironmentId: s.Environment, Status: open}
	var faults []error
	for run, err := range s.Runs.ListRuns(ctx, req) {
		if err != nil {
			return swept, errors.Join(append(faults, err)...)
		}
		if run.GetEngineRunRef() != refOf(s.Engine.o.Namespace, run.GetRunId()) {
			continue
		}
		swept.Looked++
		if err := s.look(ctx, run, &swept); err != nil {
			faults = append(faults, fmt.Errorf("temporal: cannot sweep run %q: %w", run.GetRunId(), err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return swept, errors.Join(faults...)
}

// Run sweeps at intervals until ctx ends.
func (s *Sweeper) Run(ctx context.Context, every time.Duration) {
	for {
		swept, err := s.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			s.Engine.o.Logger.WarnContext(ctx, "cannot sweep all runs; retrying", "wait", every, "err", err)
		}
		if len(swept.Ended)+len(swept.Restarted) > 0 {
			s.Engine.o.Logger.WarnContext(ctx, "workflows were ended or lost by Temporal", "ended", swept.Ended, "restarted", swept.Restarted)
		}
		if !pause(ctx, every) {
			return
		}
	}
}

func (s *Sweeper) look(ctx context.Context, run *runlogv1.Run, swept *Swept) error {
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
