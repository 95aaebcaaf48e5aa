package engine

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/structpb"

	"runlog/client/events"
	"runlog/engine/plan"
	runlogv1 "runlog/proto/runlog/v1"
)

// Starter starts runs in a workflow engine. It is safe for concurrent use.
type Starter interface {
	// Start starts a run, and returns the engine's own reference of it: 1 to 2,048 bytes. It is
	// idempotent by Run.RunId: the engine has a run once, however often Start is called, also at
	// the same time and from several processes, and the reference is always the same.
	//
	// Start returns when ctx ends. After an error the engine may have the run or not.
	//
	// ErrSkip: the run must not be started. *PermanentError: it can never be started. ErrEnded: the
	// engine has ended the run. ErrStopping: the engine is about to end. After any other error the
	// run waits, and is started again.
	Start(ctx context.Context, req StartRequest) (engineRunRef string, err error)
}

// StartRequest is a run to start.
type StartRequest struct {
	// Run has the metadata of the run as of its lease.
	Run *runlogv1.Run
	// Context is that of the request; nil if it had none.
	Context *structpb.Struct
	// Fence is that of the lease. A write with it is refused once another worker has the run
	// (QUE-8).
	Fence uint64
	// Attempt counts the leases of the run, from 1.
	Attempt uint32
}

// ErrSkip says that a run must not be started. Its request ends with RunCancelled.
var ErrSkip = errors.New("engine: the run is skipped")

// ErrEnded says that Start has ended the run in the log, and its lease with it.
var ErrEnded = errors.New("engine: the run was ended")

// ErrStopping says that the engine is about to end. The run is leased again soon, as after a stop
// of the reconciler.
var ErrStopping = errors.New("engine: the engine is stopping")

// PermanentError says that a run can never be started. The run ends with RunFailed.
type PermanentError struct {
	// Code is that of the error in RunFailed, such as PLAN_INTEGRITY_VALIDATION_FAILED. Empty:
	// START_FAILED.
	Code string
	// Err is the cause. Its text is the message in RunFailed.
	Err error
}

// Error returns the text of the cause.
func (e *PermanentError) Error() string {
	if e.Err == nil { // A run must not end each process that leases it.
		return "engine: the run can never be started"
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *PermanentError) Unwrap() error { return e.Err }

// Started returns the RunStarted of a run. It is always the same but for its time and its id, so
// that of an engine and that of a reconciler are duplicates.
func Started(run *runlogv1.Run, engineRunRef string) (*runlogv1.EventWrite, error) {
	type planRef struct {
		URI                 string              `json:"uri,omitempty"`
		SHA256              string              `json:"sha256,omitempty"`
		SchemaVersion       string              `json:"schemaVersion,omitempty"`
		PlanID              string              `json:"planId"`
		PlanVersion         string              `json:"planVersion"`
		SizeBytes           int64               `json:"sizeBytes,omitempty"`
		Compression         string              `json:"compression,omitempty"`
		ExpiresAt           string              `json:"expiresAt,omitempty"`
		SchemaEvolutionPath string              `json:"schemaEvolutionPath,omitempty"`
		MigrationHint       *plan.MigrationHint `json:"migrationHint,omitempty"`
	}
	p := run.GetPlanRef()
	return eventsOf(run).Started(once, struct {
		EngineRunRef string  `json:"engineRunRef"`
		EngineType   string  `json:"engineType,omitempty"`
		PlanRef      planRef `json:"planRef"`
	}{engineRunRef, run.GetEngineType(), planRef{p.GetUri(), p.GetSha256(), p.GetSchemaVersion(),
		p.GetPlanId(), p.GetPlanVersion(), p.GetSizeBytes(), p.GetCompression(),
		p.GetExpiresAt(), p.GetSchemaEvolutionPath(), plan.RefOf(run).MigrationHint}})
}

// Failed returns the RunFailed of a run that can never be started. It is always the same but for
// its time and its id.
func Failed(run *runlogv1.Run, cause *PermanentError) (*runlogv1.EventWrite, error) {
	type failure struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
	}
	code := cause.Code
	if code == "" {
		code = "START_FAILED"
	}
	return eventsOf(run).Failed(once, struct {
		Error failure `json:"error"`
	}{failure{code, short(cause.Error()), false}})
}

// once numbers events that a run has once. Leases do not count: another logical attempt would be
// another event.
var once = events.Attempt{Logical: 1, Engine: 1}

func eventsOf(run *runlogv1.Run) *events.Run {
	return &events.Run{
		ID: run.GetRunId(), Tenant: run.GetTenantId(), Project: run.GetProjectId(), Environment: run.GetEnvironmentId(),
		Plan: run.GetPlanRef().GetPlanId(), PlanVersion: run.GetPlanRef().GetPlanVersion(),
	}
}
