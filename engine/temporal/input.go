package temporal

import (
	"encoding/json"

	"runlog/engine/plan"
	"runlog/engine/route"
	runlogv1 "runlog/proto/runlog/v1"
)

// Input starts a run, or continues it. It is in the history of workflows: fields are added, and
// never change their meaning.
type Input struct {
	Plan plan.Ref `json:"plan"`
	Run  Scope    `json:"run"`
	// Ref is the engineRunRef.
	Ref string `json:"ref"`
	// Fence of the lease; 0: none. The workflow raises it (QUE-8).
	Fence    uint64   `json:"fence,omitempty"`
	Settings Settings `json:"settings"`
	Cursor   Cursor   `json:"cursor"`
}

// Scope is what all events of a run repeat.
type Scope struct {
	RunID         string `json:"runId"`
	TenantID      string `json:"tenantId"`
	ProjectID     string `json:"projectId"`
	EnvironmentID string `json:"environmentId"`
	PlanID        string `json:"planId"`
	PlanVersion   string `json:"planVersion"`
}

// owner returns what the run belongs to.
func (s Scope) owner() route.Owner {
	return route.Owner{TenantID: s.TenantID, EnvironmentID: s.EnvironmentID}
}

func scopeOf(run *runlogv1.Run) Scope {
	return Scope{run.GetRunId(), run.GetTenantId(), run.GetProjectId(), run.GetEnvironmentId(),
		run.GetPlanRef().GetPlanId(), run.GetPlanRef().GetPlanVersion()}
}

// Cursor is what goes along in a continuation. What is not in it is in the log.
type Cursor struct {
	Begun bool `json:"begun,omitempty"`
	// Seen is the runSeq up to which the signals of the log are known.
	Seen uint64 `json:"seen,omitempty"`
	// Status is that of the run in the log at Seen; empty: it is not known.
	Status string `json:"status,omitempty"`
	Paused bool   `json:"paused,omitempty"`
	// Held: it is paused because a step has failed.
	Held bool `json:"held,omitempty"`
	// Params is the runSeq of the event with the parameters of the run: RunQueued, or the newest
	// UPDATE_PARAMS. 0: it has none.
	Params uint64 `json:"params,omitempty"`
	// Steps has the steps that have ended, or that are not in their first attempt, by their ids.
	Steps map[string]Step `json:"steps,omitempty"`
}

// Step is what the interpreter knows of a step.
type Step struct {
	// Status is how its attempt has ended; empty: it has not.
	Status plan.Status `json:"s,omitempty"`
	// Attempt is the logical one; 0: the first.
	Attempt uint32 `json:"a,omitempty"`
	// Seq is the runSeq of its StepCompleted. Activities read its output there.
	Seq uint64 `json:"q,omitempty"`
	// Output is kept if conditions of other steps look at it.
	Output json.RawMessage `json:"o,omitempty"`
	// ByPlan: it was skipped because of other steps, and not by an operator. It is decided again
	// when one of them is retried.
	ByPlan bool `json:"p,omitempty"`
	// Retry is the attempt that an accepted RETRY_STEP has asked for, and Cause the signal.
	Retry uint32 `json:"r,omitempty"`
	Cause string `json:"c,omitempty"`
	// Skip is the accepted SKIP_STEP that is not told yet.
	Skip string `json:"k,omitempty"`
}

func (s Step) attempt() uint32 { return max(s.Attempt, 1) }

// Signal is one that the log has accepted.
type Signal struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	StepID string `json:"stepId,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Next is the next logical attempt of the step, for RETRY_STEP.
	Next uint32 `json:"next,omitempty"`
	// Seq is its runSeq.
	Seq uint64 `json:"seq,omitempty"`
}

// Event is what the workflow has an activity append.
type Event struct {
	Type   string `json:"type"`
	StepID string `json:"stepId,omitempty"`
	// Logical is 0 where the log assigns it by the cause (IDM-10).
	Logical uint32          `json:"logical,omitempty"`
	Cause   string          `json:"cause,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
}
