package signals

import (
	"encoding/json"
	"errors"
	"testing"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// FuzzAttestationATT4: whatever words and contract an attestation has, it is refused for a fault of
// a field, or its event says the words and changes the step as it says, in the snapshot as in the
// answer to the same attestation again.
func FuzzAttestationATT4(f *testing.F) {
	f.Fuzz(func(t *testing.T, notes, uri string, success bool, waiting []byte) {
		req := &runlogv1.AttestStepRequest{RunId: "run", StepId: "b", AttestedBy: "jed", Notes: notes, Outcome: runlogv1.AttestationOutcome_FAIL,
			Artifacts: []*runlogv1.AttestedArtifact{{Name: "y", Uri: uri}}}
		if success {
			req.Outcome = runlogv1.AttestationOutcome_SUCCESS
		}
		node, s := newFake(t)
		wait := storagetest.Event("run", 1)
		wait.Type, wait.StepID, wait.Payload = contract.StepWaitingForAttestation, "b", waiting
		wait.SetAttempt(1)
		if _, err := node.execute(&storage.Append{RunID: "run", Events: []contract.Event{wait}}); err != nil {
			t.Fatal(err)
		}
		resp, err := s.AttestStep(auth.With(t.Context(), auth.Local), req)
		if e := new(contract.Error); errors.As(err, &e) {
			if len(e.Violations) == 0 {
				t.Fatal(err)
			}
			return
		}
		if err != nil || resp.RunSeq != 3 {
			t.Fatalf("%v, %v", resp, err)
		}
		v, err := node.local.Store.View("run")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = v.Close() }()
		var said saying
		for r, err := range v.Events(2) {
			if r.Type == contract.StepAttested {
				err = errors.Join(err, json.Unmarshal(r.Payload, &said))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if said.Notes != notes || said.Artifacts[0].URI != uri {
			t.Fatalf("stored as %+v", said)
		}
		snapshot, err := node.Snapshot(v)
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]run.StepStatus{true: run.StepSuccess, false: run.StepFailed}[success]
		if step := snapshot.Step("b"); step.Status != want || snapshot.Status.Terminal() == success || step.Artifacts[0].URI != uri {
			t.Fatalf("step %+v of a run that is %v", step.StepAttempt, snapshot.Status)
		}
		if again, err := s.AttestStep(auth.With(t.Context(), auth.Local), req); err != nil || !again.Idempotent || again.RunSeq != 3 {
			t.Fatalf("again %v, %v", again, err)
		}
	})
}
