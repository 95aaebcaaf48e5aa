package run

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestTheLogKnowsTheEndPRJ17: whatever events a run gets, the status of its snapshot is one of
// those that the log has for it. So a run that has ended for the log has ended for its readers. If
// the run has no StepWaitingForAttestation, the log has its one status.
func TestTheLogKnowsTheEndPRJ17(t *testing.T) {
	t.Parallel()
	types := []string{
		contract.RunQueued, contract.RunApproved, contract.RunStarted, contract.RunStarted, contract.RunPaused, contract.RunResumed, contract.RunResumed,
		contract.RunCompleted, contract.RunCompleted, contract.RunFailed, contract.RunCancelled, contract.StepStarted, contract.StepCompleted,
		contract.StepFailed, contract.StepSkipped, contract.StepWaitingForAttestation, contract.StepWaitingForAttestation, contract.StepAttested,
		contract.SignalAccepted, "Noted",
	}
	rapid.Check(t, func(t *rapid.T) {
		l, err := storagetest.Open(storage.Options{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		waited := false
		for n := range rapid.IntRange(1, 12).Draw(t, "events") {
			e := storagetest.Event("run", n)
			e.Type = rapid.SampledFrom(types).Draw(t, "type")
			e.StepID = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "step")
			if contract.ScopeOf(e.Type) == contract.ScopeRun {
				e.StepID = ""
			}
			e.Payload = []byte(`{"outcome":"SUCCESS"}`)
			e.SetAttempt(rapid.Uint32Range(1, 2).Draw(t, "attempt"))
			e.IdempotencyKey, e.KeyDerived = fmt.Sprint("key-", n), false
			if _, err := l.Propose(int64(n+1), []storagetest.Request{{Append: &storage.Append{RunID: "run", Events: []contract.Event{e}}}}); err != nil {
				t.Fatal(err)
			}
			waited = waited || e.Type == contract.StepWaitingForAttestation
			v, err := l.Store.View("run")
			if err != nil {
				t.Fatal(err)
			}
			s, err := FoldView(t.Context(), v, Empty(v.Run), v.Run.Position+1)
			if err != nil {
				t.Fatal(err)
			}
			switch set := v.Run.Statuses; {
			case !set.Has(s.Status):
				t.Fatalf("the snapshot is %v, the log has %08b", s.Status, set)
			case set.Ended() && !s.Status.Terminal():
				t.Fatalf("the run has ended for the log, and is %v", s.Status)
			case !waited && set != s.Status.Only():
				t.Fatalf("the log has %08b of a run that is %v", set, s.Status)
			}
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
