package snapshots_test

import (
	"fmt"
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestSnapshotTellsWhatIsOpenPRJ19: a snapshot has the accepted signals that no event answers yet,
// how many steps are FAILED, and what the run waits for. All of it is a part of the digest.
func TestSnapshotTellsWhatIsOpenPRJ19(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepFailed", servertest.Step("a")),
			servertest.NewEvent("StepFailed", servertest.Step("b")), servertest.NewEvent("StepStarted", servertest.Step("b"), servertest.Attempt(2)))
		signals := runlogv1.NewSignalServiceClient(n.Conn)
		send := func(id, signalType, step string) {
			t.Helper()
			if _, err := signals.SendSignal(n.Context(), &runlogv1.SendSignalRequest{RunId: "run", SignalId: id, SignalType: signalType, StepId: step}); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when, want string) {
			t.Helper()
			s := n.Snapshot("run")
			var pending []string
			for _, p := range s.PendingSignals {
				pending = append(pending, fmt.Sprintf("%s %s %s next %d seq %d", p.GetSignalId(), p.SignalType, p.GetStepId(), p.GetNextLogicalAttemptId(), p.RunSeq))
			}
			got := fmt.Sprintf("%q, %d failed, waits for %v", pending, s.FailedStepsNow, s.WaitingFor)
			if s.WaitingFor != nil {
				got = fmt.Sprintf("%q, %d failed, waits for %v", pending, s.FailedStepsNow, *s.WaitingFor)
			}
			servertest.WantEqual(t, when, strings.ReplaceAll(got, "<nil>", "nothing"), want)
			servertest.CheckDigestPRJ1(t, when, n.Get("/v1/runs/run/snapshot")["snapshot"].(map[string]any))
		}
		check("before", `[], 1 failed, waits for nothing`)
		send("p", "PAUSE", "")
		send("r", "RETRY_STEP", "a")
		check("two signals", `["p PAUSE  next 0 seq 5" "r RETRY_STEP a next 2 seq 6"], 1 failed, waits for nothing`)
		n.Append("run", servertest.NewEvent("RunPaused"))
		check("paused", `["r RETRY_STEP a next 2 seq 6"], 1 failed, waits for OPERATOR`)
		n.Restart()
		n.Append("run", servertest.NewEvent("RunResumed"), servertest.NewEvent("StepDelayed", servertest.Step("a"), servertest.Attempt(2)),
			servertest.NewEvent("StepCompleted", servertest.Step("b"), servertest.Attempt(2)))
		check("the retry is delayed", `[], 0 failed, waits for TIME`)
		n.Append("run", servertest.NewEvent("StepWaitingForAttestation", servertest.Step("a"), servertest.Attempt(2)))
		check("waiting", `[], 0 failed, waits for ATTESTATION`)
	})
}
