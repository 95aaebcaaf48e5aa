package temporal

import (
	"context"
	"errors"
	"fmt"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	sdkclient "go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/route"
	runlogv1 "runlog/proto/runlog/v1"
)

// EngineType is that of the runs of this engine.
const EngineType = "temporal"

// Engine is an adapter of one namespace of Temporal, and a worker of it. It is safe for concurrent
// use.
type Engine struct {
	o          Options
	activities *activities
	// interpret is the workflow. Tests have a newer version of it.
	interpret func(workflow.Context, Input) (summary, error)
}

var _ engine.Adapter = (*Engine)(nil)

// New returns an Engine, which does nothing until it is called.
func New(o Options) (*Engine, error) {
	o = o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Engine{o: o, activities: &activities{o: o}, interpret: interpret}, nil
}

// StartRun starts the workflow of a run. If there is one, or was one, or if the log has a reference
// of the run, it starts nothing (ENG-1). If the workflow with its id is not that of the run, the
// run can never be started.
func (e *Engine) StartRun(ctx context.Context, ref plan.Ref, rc engine.RunContext) (engine.EngineRunRef, error) {
	run, err := e.o.Log.GetRun(ctx, &runlogv1.GetRunRequest{RunId: rc.RunID})
	if err != nil {
		return "", err
	}
	if stored := run.GetEngineRunRef(); stored != "" { // The sweeper knows whether it is there.
		return engine.EngineRunRef(stored), nil
	}
	if ref == (plan.Ref{}) {
		ref = plan.RefOf(run)
	}
	id, err := e.namespaceID(ctx)
	if err != nil {
		return "", err
	}
	started := refOf(id, e.o.Namespace, e.o.Prefix+rc.RunID)
	// The first start decides whether the plan has expired. A later one, such as that of the next
	// lease, finds the workflow, which may be about to append RunStarted.
	if expired := ref.Expired(time.Now()); expired == nil {
		err = e.start(ctx, run, started, ref, rc.Fence)
	} else if _, err = e.find(ctx, started, createdAt(run)); errors.Is(err, engine.ErrNoRun) {
		return "", expired
	}
	if foreign, ok := errors.AsType[*ForeignError](err); ok {
		err = &engine.PermanentError{Code: codeForeign, Err: foreign}
	}
	if err != nil {
		return "", err
	}
	return engine.EngineRunRef(started), nil
}

// start starts the workflow of a run, unless it is there.
func (e *Engine) start(ctx context.Context, run *runlogv1.Run, ref string, of plan.Ref, fence uint64) error {
	in := Input{
		Plan: of, Ref: ref, Fence: fence, Settings: e.o.Settings,
		Run: scopeOf(run),
	}
	in.Plan.ExpiresAt = time.Time{} // It decides whether the workflow starts. The workflow goes on.
	_, err := e.o.Temporal.ExecuteWorkflow(ctx, sdkclient.StartWorkflowOptions{
		ID: e.o.Prefix + run.GetRunId(), TaskQueue: route.TaskQueue(route.Step{}, run.GetEnvironmentId(), run.GetTenantId()),
		WorkflowIDReusePolicy:                    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    attributesOf(run),
		Memo:                                     memo(run, ref),
		WorkflowTaskTimeout:                      e.o.Settings.TaskTimeout,
	}, WorkflowType, in)
	if _, exists := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); exists {
		_, err = e.find(ctx, ref, createdAt(run))
	}
	if err != nil {
		return fmt.Errorf("temporal: cannot start the workflow of run %q: %w", run.GetRunId(), err)
	}
	return nil
}

// CancelRun asks the workflow of a run to cancel its steps, and to append RunCancelled.
func (e *Engine) CancelRun(ctx context.Context, ref engine.EngineRunRef, reason string) error {
	return e.ring(ctx, string(ref), Signal{Type: signalCancel, Reason: reason})
}

// ring signals the workflow of a reference. One that has ended stays as it is.
func (e *Engine) ring(ctx context.Context, ref string, s Signal) error {
	at, _ := e.address(ref)
	// A bell at another workflow than that of the run does no harm: it says that the log may have
	// something new. A CANCEL does, and so may a bell where ids have no prefix.
	if s.Seq == 0 || at.namespaceID == "" {
		if _, err := e.find(ctx, ref, ""); err != nil {
			return err
		}
	}
	err := e.o.Temporal.SignalWorkflow(ctx, at.workflowID, "", SignalName, s)
	if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
		_, err = e.find(ctx, ref, "")
	}
	return err
}

// Signal rings the bell of a workflow, which then reads the signals that the log has accepted
// (SIG-6).
func (e *Engine) Signal(ctx context.Context, ref engine.EngineRunRef, signal engine.Signal) error {
	if !e.Capabilities().Knows(signal.Type) {
		return &engine.UnsupportedError{What: "signals of the type " + signal.Type}
	}
	return e.ring(ctx, string(ref), Signal{ID: signal.ID, Type: signal.Type, StepID: signal.StepID, Seq: anySeq})
}

// anySeq marks a bell that does not know the runSeq of its signal.
const anySeq = 1

// RunStatus returns what Temporal knows of the workflow of a run.
func (e *Engine) RunStatus(ctx context.Context, ref engine.EngineRunRef) (engine.RunStatus, error) {
	d, err := e.find(ctx, string(ref), "")
	if err != nil {
		return engine.RunStatus{}, err
	}
	info := d.GetWorkflowExecutionInfo()
	status := engine.RunStatus{State: stateOf[info.GetStatus()], Message: "the workflow in Temporal is " + info.GetStatus().String()}
	for _, a := range d.GetPendingActivities() {
		if a.GetActivityType().GetName() == executeStepName {
			status.InFlight++
		}
	}
	if status.State == engine.RunRunning && text(info.GetSearchAttributes().GetIndexedFields()[statusAttribute.GetName()]) == string(engine.RunPaused) {
		if status.State = engine.RunPaused; status.InFlight > 0 {
			status.Substatus = "DRAINING"
		}
	}
	return status, nil
}

// stateOf has the states of runs by those of workflows. One that was terminated, or that took too
// long, has failed: the sweeper says so in the log.
var stateOf = map[enums.WorkflowExecutionStatus]engine.RunState{
	enums.WORKFLOW_EXECUTION_STATUS_RUNNING:          engine.RunRunning,
	enums.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW: engine.RunRunning,
	enums.WORKFLOW_EXECUTION_STATUS_PAUSED:           engine.RunPaused,
	enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:        engine.RunCompleted,
	enums.WORKFLOW_EXECUTION_STATUS_FAILED:           engine.RunFailed,
	enums.WORKFLOW_EXECUTION_STATUS_TERMINATED:       engine.RunFailed,
	enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:        engine.RunFailed,
	enums.WORKFLOW_EXECUTION_STATUS_CANCELED:         engine.RunCancelled,
}

// Ping returns nil if Temporal answers, and has the namespace.
func (e *Engine) Ping(ctx context.Context) error {
	// The SDK writes its namespace into the request.
	req := &workflowservice.CountWorkflowExecutionsRequest{Query: "WorkflowType = '" + WorkflowType + "'"}
	if _, err := e.o.Temporal.CountWorkflow(ctx, req); err != nil {
		return fmt.Errorf("temporal: cannot ask Temporal for the workflows of the namespace %q: %w", e.o.Namespace, err)
	}
	return nil
}

// Capabilities returns what the adapter can do.
func (e *Engine) Capabilities() engine.Capabilities {
	return engine.Capabilities{
		Adapter: EngineType, SchemaVersion: plan.Current().String(), Steps: e.activities.capabilities(),
		Signals: []string{signalPause, signalResume, signalCancel, signalStop, signalRetry, signalSkip, signalParams},
		Reruns:  true,
	}
}

func (a *activities) capabilities() []string {
	return append(a.o.Registry.Capabilities(), plan.CapabilityWait)
}

// The attributes that workflows can be searched by.
var (
	tenantAttribute      = sdk.NewSearchAttributeKeyKeyword("tenantId")
	projectAttribute     = sdk.NewSearchAttributeKeyKeyword("projectId")
	environmentAttribute = sdk.NewSearchAttributeKeyKeyword("environmentId")
	planAttribute        = sdk.NewSearchAttributeKeyKeyword("planId")
	tierAttribute        = sdk.NewSearchAttributeKeyKeyword("regulatoryTier")
	statusAttribute      = sdk.NewSearchAttributeKeyKeyword("runStatus")
)
