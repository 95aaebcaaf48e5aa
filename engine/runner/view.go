package runner

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"runlog/engine/plan"
	"runlog/engine/replay"
	runlogv1 "runlog/proto/runlog/v1"
)

// StepRunID names an attempt of a step of a run (ATT-6).
func StepRunID(runID, stepKey string, attempt uint32) string {
	return uuid.NewSHA1(namespace, fmt.Appendf(nil, "%q %q %d", runID, stepKey, attempt)).String()
}

// runView is a run as the API shows it (ATT-3).
type runView struct {
	listedRun
	// RerunOf is the run that this one reruns.
	RerunOf string `json:"rerun_of,omitempty"`
	// Error says why the run has failed, as its event does.
	Error json.RawMessage `json:"error,omitempty"`
	Steps []stepView      `json:"steps"`
}

// listedRun is a run in a list.
type listedRun struct {
	ID          string     `json:"id"`
	ManifestID  string     `json:"manifest_id"`
	Status      string     `json:"status"`
	InitiatedBy string     `json:"initiated_by"`
	StartedAt   *time.Time `json:"started_at"`
	EndedAt     *time.Time `json:"ended_at"`
}

type stepView struct {
	StepRunID string     `json:"step_run_id"`
	StepKey   string     `json:"step_key"`
	StepType  string     `json:"step_type"`
	Status    string     `json:"status"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	// Error says why the step has failed: code, message and retryable.
	Error       json.RawMessage  `json:"error,omitempty"`
	Contract    json.RawMessage  `json:"compute_contract,omitempty"`
	Attestation *attestationView `json:"attestation,omitempty"`
	// Approvals are those of a step that waits for further attesters.
	Approvals []*attestationView `json:"approvals,omitempty"`
}

// attestationView is an attestation in the words of the seed document. The members of a payload are
// as it has them: a decider of its own may have written others.
type attestationView struct {
	ID         string          `json:"id"`
	StepRunID  string          `json:"step_run_id"`
	AttestedBy json.RawMessage `json:"attested_by"`
	AttestedAt *time.Time      `json:"attested_at"` // nil: of an approval
	Outcome    json.RawMessage `json:"outcome"`
	Notes      json.RawMessage `json:"notes"`
	Contract   json.RawMessage `json:"contract_snapshot"`
	Approvers  json.RawMessage `json:"approvers,omitempty"`
	// Approvals and Needed are those of an approval.
	Approvals json.RawMessage `json:"approvals,omitempty"`
	Needed    json.RawMessage `json:"approvals_needed,omitempty"`
	Artifacts []artifactView  `json:"artifacts"`
}

type artifactView struct {
	ID            string          `json:"id"`
	AttestationID string          `json:"attestation_id"`
	Name          json.RawMessage `json:"name"`
	URI           json.RawMessage `json:"uri"`
	SHA256        json.RawMessage `json:"sha256"`
	Bytes         json.RawMessage `json:"bytes"`
	CreatedAt     *time.Time      `json:"created_at"`
}

// statusWord is the status of a run in the words of the API. A run waits while one of its steps
// does, also if another writer has resumed it.
func statusWord(s runlogv1.RunStatus_Value, stepWaits bool) string {
	switch {
	case s == runlogv1.RunStatus_COMPLETED:
		return "success"
	case ended(s):
		return "error"
	case stepWaits, s == runlogv1.RunStatus_WAITING, s == runlogv1.RunStatus_PAUSED:
		return "waiting"
	}
	return "running"
}

func ended(s runlogv1.RunStatus_Value) bool {
	return s == runlogv1.RunStatus_COMPLETED || s == runlogv1.RunStatus_FAILED || s == runlogv1.RunStatus_CANCELLED
}

func stepWord(s plan.Status) string {
	if s == plan.Failed {
		return "FAIL"
	}
	return string(s)
}

func viewOf(run *runlogv1.Run, s *replay.State) runView {
	v := runView{listedRun: listedRun{
		ID: run.GetRunId(), ManifestID: run.GetPlanRef().GetPlanId(), Status: statusWord(s.Status, s.WaitingStep() != nil), InitiatedBy: run.GetTriggeredBy(),
		StartedAt: timeOf(s.StartedAt), EndedAt: timeOf(s.EndedAt),
	}, RerunOf: s.RerunOf(), Error: errorOf(s.Last), Steps: []stepView{}}
	for _, step := range s.Steps {
		w := stepView{
			StepRunID: StepRunID(v.ID, step.ID, step.Attempt), StepKey: step.ID, StepType: "task", Status: stepWord(step.Status),
			StartedAt: timeOf(step.StartedAt), EndedAt: timeOf(step.EndedAt),
		}
		if step.Status == plan.Failed {
			w.Error = errorOf(step.Ended)
		}
		w.Contract = contractOf(step.Waiting)
		if step.Attested != nil {
			w.Attestation = attestationOf(w.StepRunID, 0, step.Attested, w.EndedAt)
		}
		for i, approval := range step.Approvals {
			if step.Status == replay.Waiting {
				w.Approvals = append(w.Approvals, attestationOf(w.StepRunID, i+1, approval, nil))
			}
		}
		if step.Status == plan.Skipped && w.Contract == nil {
			w.Contract = contractOf(step.Ended)
		}
		if step.Waiting != nil || step.Attested != nil || w.Contract != nil {
			w.StepType = plan.Compute
		}
		v.Steps = append(v.Steps, w)
	}
	return v
}

// errorOf returns the error of a payload; nil: it has none.
func errorOf(payload json.RawMessage) json.RawMessage {
	var p struct{ Error json.RawMessage }
	_ = json.Unmarshal(payload, &p) // The payload has been stored as JSON.
	return p.Error
}

// contractOf returns the contract that a step waits for, in the words of the manifest.
func contractOf(waiting json.RawMessage) json.RawMessage {
	var p struct {
		Contract map[string]json.RawMessage `json:"contract"`
	}
	if json.Unmarshal(waiting, &p) != nil || p.Contract == nil {
		return nil
	}
	delete(p.Contract, "timeoutMinutes") // The seed document has timeout_minutes.
	body, err := marshal(p.Contract)
	if err != nil {
		return nil
	}
	return body
}

// attestationOf returns the attestation of a step run by its payload, or its approval with a number
// from 1 on. at is when the log has stored the attestation.
func attestationOf(stepRunID string, approval int, payload json.RawMessage, at *time.Time) *attestationView {
	var p struct {
		AttestedBy, Outcome, Notes, Approvers, Approvals, ApprovalsNeeded, Artifacts json.RawMessage
	}
	_ = json.Unmarshal(payload, &p) // What the payload does not have is null.
	v := &attestationView{
		ID: uuid.NewSHA1(namespace, fmt.Appendf(nil, "%s %d", stepRunID, approval)).String(), StepRunID: stepRunID, AttestedAt: at,
		AttestedBy: p.AttestedBy, Outcome: p.Outcome, Notes: p.Notes, Contract: contractOf(payload), Approvers: p.Approvers, Approvals: p.Approvals,
		Needed: p.ApprovalsNeeded, Artifacts: []artifactView{},
	}
	var artifacts []struct{ Name, URI, SHA256, Bytes, SizeBytes json.RawMessage }
	_ = json.Unmarshal(p.Artifacts, &artifacts)
	for i, x := range artifacts {
		if x.Bytes == nil {
			x.Bytes = x.SizeBytes
		}
		v.Artifacts = append(v.Artifacts, artifactView{
			ID: uuid.NewSHA1(namespace, fmt.Appendf(nil, "%s %d", v.ID, i)).String(), AttestationID: v.ID,
			Name: x.Name, URI: x.URI, SHA256: x.SHA256, Bytes: x.Bytes, CreatedAt: at,
		})
	}
	return v
}

// timeOf returns a time as the API has it; nil: it is not known.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() || t.Unix() == 0 {
		return nil
	}
	return &t
}
