package replay

import (
	"encoding/json"
	"fmt"
	"math"

	"runlog/engine/plan"
	"runlog/proto/contract"
)

// reasonFailed is the reasonCode of the RunPaused of a run that a failed step holds.
const reasonFailed = "STEP_FAILED"

// Hold returns the logical attempt and the payload of the RunPaused that a run gets in place of its
// RunFailed, all steps of which have ended; false: it ends. The run goes on with a RETRY_STEP, or
// ends with a RESUME, which both are its Resume.
func (s *State) Hold(p *plan.Plan) (attempt uint32, payload map[string]any, ok bool) {
	if !p.Waits || s.conceded || s.pauses == math.MaxUint32 {
		return 0, nil, false
	}
	for _, step := range s.Steps {
		if step.Status == plan.Failed {
			return s.pauses + 1, map[string]any{"reasonCode": reasonFailed, "reason": fmt.Sprintf(
				"step %.100q has failed: RETRY_STEP tries it again, RESUME ends the run as failed, and CANCEL as cancelled", step.ID)}, true
		}
	}
	return 0, nil, false
}

// Held reports whether the run is paused because a step has failed.
func (s *State) Held() bool { return s.held }

// retry returns the first RETRY_STEP that a held run can follow; false: there is none.
func (s *State) retry() (first Signal, ok bool) {
	for _, x := range s.Signals {
		if x.Type == contract.SignalPause {
			return Signal{}, false
		}
	}
	for _, x := range s.asked {
		if s.held && x.Type == contract.SignalRetryStep && (!ok || x.Seq < first.Seq) {
			first, ok = x, true
		}
	}
	return first, ok
}

// pendingResume reports whether an id is that of a RESUME that the run does not follow yet.
func (s *State) pendingResume(id string) bool {
	for _, x := range s.Signals {
		if x.Type == contract.SignalResume && x.ID == id {
			return true
		}
	}
	return false
}

func reasonOf(payload json.RawMessage) string {
	var p struct{ ReasonCode string }
	_ = json.Unmarshal(payload, &p) // That of another producer may say nothing.
	return p.ReasonCode
}
