package run

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestWaitingForPRJ19: what a run waits for follows from its status and those of its steps.
func TestWaitingForPRJ19(t *testing.T) {
	for _, c := range [...]struct{ events, want string }{
		{"", ""},
		{"RunQueued RunApproved", ""},
		{"RunStarted", ""},
		{"RunStarted StepStarted:a", ""},
		{"RunStarted StepStarted:a PAUSE", ""},
		{"RunStarted StepStarted:a RunPaused", "OPERATOR"},
		{"RunStarted StepStarted:a RunPaused RunResumed", ""},
		{"RunStarted StepWaitingForAttestation:a", "ATTESTATION"},
		{"RunStarted StepStarted:b StepWaitingForAttestation:a", "ATTESTATION"},
		{"RunStarted StepWaitingForAttestation:a RunPaused", "OPERATOR"},
		{"RunStarted StepWaitingForAttestation:a RunResumed", "ATTESTATION"},
		{"RunStarted StepWaitingForAttestation:a RunResumed StepStarted:b", ""},
		{"RunStarted StepWaitingForAttestation:a StepFailed:a", "OPERATOR"},
		{"RunStarted StepWaitingForAttestation:a StepFailed:a RunResumed", ""},
		{"RunStarted StepDelayed:a", "TIME"},
		{"RunStarted StepDelayed:a StepStarted:b", ""},
		{"RunStarted StepDelayed:a StepStarted:b StepCompleted:b", "TIME"},
		{"RunStarted StepDelayed:a StepStarted:a", ""},
		{"RunStarted StepStarted:a StepRetrying:a", "TIME"},
		{"RunStarted StepStarted:b StepStarted:a StepRetrying:a", ""},
		{"RunStarted StepStarted:a StepRetrying:a StepCompleted:a", ""},
		{"RunStarted StepDelayed:a StepWaitingForAttestation:b RunResumed", "ATTESTATION"},
		{"RunStarted StepWaitingForAttestation:a RunCancelled", ""},
		{"RunStarted StepDelayed:a RunCompleted", ""},
	} {
		tape := newTape()
		tape.add("Noted", "", 1, `{}`)
		for word := range strings.FieldsSeq(c.events) {
			tape.act(word)
		}
		got := ""
		if waiting := ReduceAll(nil, tape.records).WaitingFor(); waiting != 0 {
			got = waitingForNames[waiting]
			if name := runlogv1.WaitingFor_Value(waiting).String(); name != got {
				t.Errorf("%s is %s on the wire", got, name)
			}
		}
		if got != c.want {
			t.Errorf("%s: waits for %q, want %q", c.events, got, c.want)
		}
	}
}

// TestFailedStepsNowPRJ19: failedStepsNow counts steps, failedSteps logical attempts.
func TestFailedStepsNowPRJ19(t *testing.T) {
	tape := newTape()
	tape.act("RunStarted")
	for _, c := range [...]struct {
		event         string
		attempts, now uint32
	}{
		{"StepFailed:a", 1, 1}, {"StepFailed:b", 2, 2}, {"StepStarted:a:2", 2, 1}, {"StepFailed:a:2", 3, 2}, {"StepCompleted:a:3", 3, 1},
	} {
		tape.act(c.event)
		if s := ReduceAll(nil, tape.records); s.FailedSteps != c.attempts || s.FailedStepsNow() != c.now {
			t.Errorf("after %s: failedSteps %d, failedStepsNow %d; want %d, %d", c.event, s.FailedSteps, s.FailedStepsNow(), c.attempts, c.now)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := ReduceAll(nil, someRecords().Draw(t, "run"))
		if s == nil {
			return
		}
		var now uint32
		for step := range s.Steps.All() {
			if step.Status == StepFailed {
				now++
			}
		}
		if s.FailedStepsNow() != now {
			t.Fatalf("failedStepsNow %d, want %d: %s", s.FailedStepsNow(), now, s.CanonicalJSON())
		}
	})
}
