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
	ID          string     `json:"id"`
	ManifestID  string     `json:"manifest_id"`
	Status      string     `json:"status"`
	InitiatedBy string     `json:"initiated_by"`
	StartedAt   *time.Time `json:"started_at"`
	EndedAt     *time.Time `json:"ended_at"`
	Steps       []stepView `json:"steps"`
}

type stepView struct {
	StepRunID   string          `json:"step_run_id"`
	StepKey     string          `json:"step_key"`
	StepType    string          `json:"step_type"`
	Status      string          `json:"status"`
	StartedAt   *time.Time      `json:"started_at"`
	EndedAt     *time.Time      `json:"ended_at"`
	Contract    json.RawMessage `json:"compute_contract,omitempty"`
	Attestation json.RawMessage `json:"attestation,omitempty"`
	// Approvals are those of a step that waits for further attesters.
	Approvals []json.RawMessage `json:"approvals,omitempty"`
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
	v := runView{
		ID: run.GetRunId(), ManifestID: run.GetPlanRef().GetPlanId(), Status: statusWord(s.Status, s.WaitingStep() != nil), InitiatedBy: run.GetTriggeredBy(),
		StartedAt: timeOf(s.StartedAt), EndedAt: timeOf(s.EndedAt), Steps: []stepView{},
	}
	for _, step := range s.Steps {
		w := stepView{
			StepRunID: StepRunID(v.ID, step.ID, step.Attempt), StepKey: step.ID, StepType: "task", Status: stepWord(step.Status),
			StartedAt: timeOf(step.StartedAt), EndedAt: timeOf(step.EndedAt),
		}
		w.Contract, w.Attestation = contractOf(step.Waiting), attestationOf(step.Attested)
		if step.Status == replay.Waiting {
			w.Approvals = step.Approvals
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

// attestationOf returns an attestation, with its copy of the contract in the words of the manifest.
func attestationOf(attested json.RawMessage) json.RawMessage {
	var p map[string]json.RawMessage
	if json.Unmarshal(attested, &p) != nil {
		return nil
	}
	if contract := contractOf(attested); contract != nil {
		p["contract"] = contract
	}
	body, err := marshal(p)
	if err != nil {
		return nil
	}
	return body
}

// timeOf returns a time as the API has it; nil: it is not known.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() || t.Unix() == 0 {
		return nil
	}
	return &t
}
