package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"

	"runlog/engine/plan"
	"runlog/engine/replay"
	runlogv1 "runlog/proto/runlog/v1"
)

// Adapter is a workflow engine as runlog drives it (ENG-1). It is a client of the log: it imports
// the client library and nothing of the server. It is safe for concurrent use. Each method returns
// when its context ends.
type Adapter interface {
	// StartRun starts a run, and returns the engine's reference of it. It is idempotent by
	// RunContext.RunID, as Starter.Start is, and returns the same errors.
	StartRun(ctx context.Context, ref plan.Ref, run RunContext) (EngineRunRef, error)
	// CancelRun has the engine end a run. A run that has ended stays as it is. The engine appends
	// RunCancelled once its steps have ended.
	CancelRun(ctx context.Context, ref EngineRunRef, reason string) error
	// RunStatus returns what the engine knows of a run. What holds is its snapshot in the log.
	RunStatus(ctx context.Context, ref EngineRunRef) (RunStatus, error)
	// Signal hands a signal over that the log has accepted (SIG-6). The same signal again, by its
	// id, changes nothing. *UnsupportedError: the engine does not know signals of the type.
	Signal(ctx context.Context, ref EngineRunRef, signal Signal) error
	// Ping returns nil if the engine can be reached and takes runs.
	Ping(ctx context.Context) error
	// Capabilities returns what the engine can do.
	Capabilities() Capabilities
}

// Log is what adapters need of a client.Client. Its calls retry until their context ends.
type Log interface {
	replay.Log
	GetRun(context.Context, *runlogv1.GetRunRequest) (*runlogv1.Run, error)
	GetSnapshot(context.Context, *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error)
	AppendEvents(context.Context, *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error)
	SetEngineRunRef(context.Context, *runlogv1.SetEngineRunRefRequest) (*runlogv1.SetEngineRunRefResponse, error)
}

// EngineRunRef is the engine's own reference of a run: 1 to 2,048 bytes, the same forever.
type EngineRunRef string //nolint:revive // ENG-1 calls it so.

// RunContext is what an adapter knows of a run beside its plan.
type RunContext struct {
	RunID, TenantID, ProjectID, EnvironmentID string
	// Parameters are the context of the request; nil if it had none.
	Parameters *structpb.Struct
	// Fence is that of the lease. A write with it is refused once another worker has the run
	// (QUE-8). 0: the run has no lease.
	Fence uint64
	// Attempt counts the leases of the run, from 1.
	Attempt uint32
}

// RunState is the state of a run in an engine.
type RunState string

// The states.
const (
	RunPending   RunState = "PENDING"
	RunRunning   RunState = "RUNNING"
	RunWaiting   RunState = "WAITING" // for an attestation
	RunPaused    RunState = "PAUSED"
	RunCompleted RunState = "COMPLETED"
	RunFailed    RunState = "FAILED"
	RunCancelled RunState = "CANCELLED"
)

// Ended reports whether a run in this state does nothing more.
func (s RunState) Ended() bool { return s == RunCompleted || s == RunFailed || s == RunCancelled }

// RunStatus is what an engine knows of a run.
type RunStatus struct {
	State RunState
	// Substatus tells more, such as DRAINING (ENG-5). Empty: nothing.
	Substatus string
	// InFlight counts the steps that are being executed.
	InFlight int
	// Message is for people.
	Message string
}

// Signal is a signal that the log has accepted.
type Signal struct {
	ID, Type string
	StepID   string // of RETRY_STEP and SKIP_STEP
	Reason   string
	// Parameters are those of the sender; nil if there are none.
	Parameters *structpb.Struct
	// LogicalAttemptID is the next one of the step, for RETRY_STEP (SIG-7).
	LogicalAttemptID uint32
}

// Capabilities are what an engine can do: adapterCapabilities.json.
type Capabilities struct {
	// Adapter is the engineType of runs, such as conductor.
	Adapter string `json:"adapter"`
	// SchemaVersion is the highest one of plans that is read.
	SchemaVersion string `json:"schemaVersion"`
	// Signals are the types that have an effect.
	Signals []string `json:"signals"`
	// Steps are the capabilities that plans ask for, such as executor:http.
	Steps []string `json:"steps"`
	// Reruns says that a run which reruns another one takes over what has succeeded there.
	Reruns bool `json:"reruns"`
}

// Knows reports whether signals of a type have an effect.
func (c Capabilities) Knows(signalType string) bool { return slices.Contains(c.Signals, signalType) }

// ErrNoRun means that the engine has no run by a reference.
var ErrNoRun = errors.New("engine: the engine has no such run")

// UnsupportedError says that an engine cannot do what it is asked for.
type UnsupportedError struct{ What string }

// Error returns what the engine cannot do.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("engine: the engine does not support %s: see its Capabilities", e.What)
}

// Starts returns a Starter for a Reconciler that starts runs by an adapter.
func Starts(a Adapter) Starter { return starts{a} }

type starts struct{ Adapter }

func (s starts) Start(ctx context.Context, req StartRequest) (string, error) {
	ref, err := s.StartRun(ctx, plan.RefOf(req.Run), RunContext{
		RunID: req.Run.GetRunId(), TenantID: req.Run.GetTenantId(), ProjectID: req.Run.GetProjectId(),
		EnvironmentID: req.Run.GetEnvironmentId(), Parameters: req.Context, Fence: req.Fence, Attempt: req.Attempt,
	})
	return string(ref), Permanent(err)
}

// Permanent returns a failure of a plan that is not retryable as a *PermanentError, with its code:
// the run fails. It returns any other error as it is.
func Permanent(err error) error {
	if failure, ok := errors.AsType[plan.Failure](err); ok && !failure.Retryable() {
		return &PermanentError{Code: failure.Code(), Err: err}
	}
	return err
}
