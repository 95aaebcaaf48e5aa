package signals_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestDecisionsWithTakenKeysIDM5IDM10SIG2: a signal is decided, also if a producer has taken the
// keys of the next attempts of its decision.
func TestDecisionsWithTakenKeysIDM5IDM10SIG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for _, decision := range []string{contract.SignalAccepted, contract.SignalRejected} {
			for attempt := range uint32(2) {
				n.Append("run", servertest.Taking("run", servertest.NewEvent(decision, servertest.Attempt(1+attempt))))
			}
		}
		servertest.WantEqual(t, "first", outcome(send(n, signal("s-1", "PAUSE"))), "ACCEPTED")
		servertest.WantEqual(t, "second", outcome(send(n, signal("s-2", "PAUSE"))), "ALREADY_PAUSED")
		again := send(n, signal("s-1", "PAUSE"))
		servertest.WantEqual(t, "first again", outcome(again), "ACCEPTED")
		servertest.WantEqual(t, "its runSeq", again.RunSeq, 6)
		for _, e := range n.List("run")[5:] {
			servertest.WantEqual(t, "attempt of "+e.EventType, e.LogicalAttemptId, 3)
		}
	})
}

// TestDecisionsWithTakenKeysWithoutPlanIDM5: the keys of decisions in a run that has no plan yet
// can be taken too, those of earlier releases and those of this one.
func TestDecisionsWithTakenKeysWithoutPlanIDM5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		planless := func(key string) *runlogv1.EventWrite {
			return servertest.NewEvent("Noted", servertest.Key(key), func(e *runlogv1.EventWrite) {
				e.ContractVersion, e.PlanId, e.PlanVersion = "1.1", "", ""
			})
		}
		n.Append("run", planless(fmt.Sprintf("signal-%x", sha256.Sum256([]byte("SignalAccepted|s-1")))),
			planless(contract.DeriveKey(contract.Line11, "run", "", 1, 1, contract.SignalAccepted, "", "")))
		servertest.WantEqual(t, "decision", outcome(send(n, signal("s-1", "UPDATE_PARAMS"))), "ACCEPTED")
		servertest.WantEqual(t, "again", send(n, signal("s-1", "UPDATE_PARAMS")).RunSeq, 3)
	})
}

// TestCancelWithTakenKeyIDM5QUE10: a CANCEL of a queued run ends the run, also if a producer has
// taken the keys of the first RunCancelled.
func TestCancelWithTakenKeyIDM5QUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("r1", servertest.Named("run"))
		n.Append("run", servertest.Taking("run", servertest.RunEnd(contract.RunCancelled)))
		servertest.WantEqual(t, "decision", outcome(send(n, signal("s-1", "CANCEL"))), "ACCEPTED")
		servertest.WantEqual(t, "status", n.Snapshot("run").Status, runlogv1.RunStatus_CANCELLED)
		events := n.List("run")
		if last := events[len(events)-1]; last.EventType != contract.RunCancelled || last.LogicalAttemptId != 2 || last.GetCausedBySignalId() != "s-1" {
			t.Errorf("the last event is %v", last)
		}
	})
}

// TestAttestFailWithTakenKeyIDM5ATT4: an attestation of FAIL is stored with the end of the run,
// also if a producer has taken the keys of the first RunFailed.
func TestAttestFailWithTakenKeyIDM5ATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAttesting(t)
		fail := func(r *runlogv1.AttestStepRequest) { r.Outcome = runlogv1.AttestationOutcome_FAIL }
		a.append("run", servertest.Taking("run", servertest.NewEvent(contract.RunFailed)))
		if _, err := a.attest(a.ann, fail); err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "events", a.types("run"), "Noted StepAttested RunFailed")
	})
}

// TestAttestStepWithTakenKeyIDM5ATT6: the key of an attestation is that of the attempt of its step,
// and cannot move. If a producer has taken it, the call is refused at once, and says which event
// has the key; nothing is stored. Another attempt of the step is attested.
func TestAttestStepWithTakenKeyIDM5ATT6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAttesting(t)
		attested := servertest.NewEvent(contract.StepAttested, servertest.Step("b"))
		taking := servertest.Taking("run", attested)
		a.append("run", taking)
		for _, as := range []runlogv1.AttestationOutcome_Value{runlogv1.AttestationOutcome_SUCCESS, runlogv1.AttestationOutcome_FAIL} {
			_, err := a.attest(a.ann, func(r *runlogv1.AttestStepRequest) { r.Outcome = as })
			r := servertest.Refused(t, err, contract.ReasonKeyTaken)
			if r.Metadata["run_id"] != "run" || r.Metadata["run_seq"] != "3" || r.Metadata["step_id"] != "b" ||
				r.Metadata["idempotency_key"] != taking.IdempotencyKey {
				t.Errorf("metadata %v", r.Metadata)
			}
			servertest.WantEqual(t, "message", r.Message, `attempt 1 of step "b" cannot be attested: the event with runSeq 3 of run "run" has the key of its StepAttested; nothing was stored. `+
				contract.ReasonKeyTaken.Info().Help)
			servertest.WantEqual(t, "events", a.types("run"), "Noted")
		}
		a.append("run", waiting("b", 2))
		if _, err := a.attest(a.ann); err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "events", a.types("run"), "Noted StepWaitingForAttestation StepAttested")
	})
}
