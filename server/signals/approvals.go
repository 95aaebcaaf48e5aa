package signals

import (
	"encoding/json"
	"fmt"
	"slices"

	"runlog/proto/contract"
)

// maxApprovals bounds how many attesters a contract may ask for.
const maxApprovals = 20

// count adds an attestation that succeeds to the approvals of an attempt (SEC-10). One that fails
// needs no others. It refuses an attester that has approved before, also in another name.
func (a *attestation) count(attempt uint32) error {
	a.said.strip()
	if a.said.Outcome == outcomeFail {
		return nil
	}
	needed, err := a.approvalsNeeded(attempt)
	if err != nil || needed == 1 {
		return err
	}
	var approvers []string
	for _, r := range a.past.approved {
		by := approverOf(r.Payload, r.AppendedBy.Name)
		if r.LogicalAttemptID != attempt || by == "" {
			continue
		}
		if by == a.attestedBy || by == a.caller.Authenticated().Name || r.AppendedBy.Name != "" && r.AppendedBy.Name == a.attestedBy {
			return &contract.Error{Reason: contract.ReasonStepNotWaiting,
				Message: fmt.Sprintf("%s has approved attempt %d of step %s, or its caller has approved it for another, and the contract asks for %d "+
					"different attesters; nothing was stored; have another identity attest",
					contract.Quote(by), attempt, contract.Quote(a.stepID), needed),
				Metadata: map[string]string{"run_id": a.runID, "step_id": a.stepID}}
		}
		if !slices.Contains(approvers, by) {
			approvers = append(approvers, by)
		}
	}
	approvers = append(approvers, a.attestedBy)
	a.said.Approvals, a.said.Needed = len(approvers), needed
	if len(approvers) >= needed {
		a.said.Approvers = approvers
	}
	return nil
}

// approvalsNeeded is how many attesters the contract of an attempt asks for. A contract that asks
// for no number of them must not let one be enough.
func (a *attestation) approvalsNeeded(attempt uint32) (int, error) {
	var members map[string]json.RawMessage // exactly as they are written
	_ = json.Unmarshal(a.past.contracts[attempt], &members)
	raw, ok := members["approvals"]
	if !ok {
		return 1, nil
	}
	var n int
	if json.Unmarshal(raw, &n) != nil || n < 1 || n > maxApprovals {
		return 0, &contract.Error{Reason: contract.ReasonStepNotWaiting,
			Message: fmt.Sprintf("the contract of step %s asks for %s approvals, which is no number from 1 to %d, "+
				"so it can fail alone; nothing was stored; attest FAIL, or end it with SKIP_STEP", contract.Quote(a.stepID), contract.Quote(string(raw)), maxApprovals),
			Metadata: map[string]string{"run_id": a.runID, "step_id": a.stepID}}
	}
	return n, nil
}

// approverOf is the attester of an approval. That of a decider may name none.
func approverOf(payload []byte, appendedBy string) string {
	var said saying
	if json.Unmarshal(payload, &said) != nil || said.AttestedBy == "" {
		return appendedBy
	}
	return said.AttestedBy
}
