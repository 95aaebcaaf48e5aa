package run

import (
	"bytes"
	"fmt"
	"testing"

	"runlog/proto/contract"
)

// TestApprovalsSEC10PRJ1: a step that waits shows each of its approvers once, until it waits no
// more or has another attempt. Folded from any stored snapshot, the result is the same, and no
// approval is an inconsistency.
func TestApprovalsSEC10PRJ1(t *testing.T) {
	t.Parallel()
	approved := func(by string) string { return `{"outcome":"SUCCESS","attestedBy":"` + by + `"}` }
	tape := runIn(Running)
	for _, step := range []struct {
		eventType string
		attempt   uint32
		payload   string
		want      string
	}{
		{contract.StepAttestationApproved, 1, approved("early"), "none"},
		{contract.StepStarted, 1, `{}`, "[]"},
		{contract.StepAttestationApproved, 1, approved("early"), "[]"},
		{contract.StepWaitingForAttestation, 1, `{}`, "[]"},
		{contract.StepAttestationApproved, 1, approved("ann"), "[ann]"},
		{contract.StepAttestationApproved, 1, approved("ann"), "[ann]"},
		{contract.StepAttestationApproved, 1, `{"attestedBy":7}`, "[ann]"},
		{contract.StepAttestationApproved, 1, approved("bob"), "[ann bob]"},
		{contract.StepWaitingForAttestation, 2, `{}`, "[]"},
		{contract.StepAttestationApproved, 1, approved("cid"), "[]"},
		{contract.StepAttestationApproved, 2, approved("dan"), "[dan]"},
		{contract.StepAttested, 2, `{"outcome":"SUCCESS"}`, "[]"},
		{contract.StepAttestationApproved, 2, approved("late"), "[]"},
	} {
		tape.add(step.eventType, "gate", step.attempt, step.payload)
		s := ReduceAll(nil, tape.records)
		got := "none"
		if gate := s.Step("gate"); gate != nil {
			got = fmt.Sprint(gate.Approvals)
		}
		if got != step.want || s.InconsistencyCount != 0 {
			t.Errorf("after %s: %s, want %s; inconsistencies %v", step.payload, got, step.want, s.Inconsistencies)
		}
	}
	want := ReduceAll(nil, tape.records).MarshalStored()
	for n := range tape.records {
		stored, err := UnmarshalStored(ReduceAll(nil, tape.records[:n+1]).MarshalStored())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ReduceAll(stored, tape.records[n+1:]).MarshalStored(), want) {
			t.Errorf("from the snapshot of %d records: stored in other bytes", n+1)
		}
	}
}
