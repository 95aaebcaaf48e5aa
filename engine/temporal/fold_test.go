package temporal

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"runlog/engine/replay"
	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// drawRecord draws an event that a log may have, which any writer may have appended.
func drawRecord(t *rapid.T, seq uint64) *runlogv1.EventRecord {
	e := &runlogv1.EventRecord{RunSeq: seq, PersistedAt: timestamppb.Now(), LogicalAttemptId: rapid.Uint32Range(1, 3).Draw(t, "attempt"),
		EngineAttemptId: rapid.Uint32Range(1, 3).Draw(t, "engine attempt")}
	e.EventType = rapid.SampledFrom([]string{contract.RunQueued, contract.RunApproved, contract.RunStarted, contract.RunPaused, contract.RunResumed,
		contract.RunCompleted, contract.RunFailed, contract.RunCancelled, contract.StepStarted, contract.StepCompleted, contract.StepFailed,
		contract.StepSkipped, contract.StepWaitingForAttestation, contract.StepAttested}).Draw(t, "type")
	payload := `{}`
	if step := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "step"); e.GetEventType()[0] == 'S' {
		e.StepId = &step
	}
	if e.GetEventType() == contract.StepAttested {
		payload = rapid.SampledFrom([]string{`{"outcome":"SUCCESS"}`, `{"outcome":"FAIL"}`}).Draw(t, "payload")
	}
	e.PayloadForm = &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(payload)}
	return e
}

// TestHistoryIsThatOfTheSnapshotPRJ4: after any events, read at once or from where a workflow has
// read them, the run stands as in the snapshot. So do its steps, if all events are read.
func TestHistoryIsThatOfTheSnapshotPRJ4(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snapshot, stored := &run.Snapshot{Status: run.Pending}, map[string]bool{}
		whole := &history{State: replay.New()}
		part := &history{State: replay.New()}
		var list []string
		waits := false
		cut := rapid.IntRange(0, 20).Draw(t, "cut")
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			e := drawRecord(t, uint64(len(list)+1))
			key := fmt.Sprint(e.GetEventType(), " ", e.GetStepId(), " ", e.GetLogicalAttemptId(), ".", e.GetEngineAttemptId())
			if stored[key] {
				continue
			}
			stored[key] = true
			list = append(list, key)
			waits = waits || e.GetEventType() == contract.StepWaitingForAttestation
			snapshot = run.Reduce(snapshot, &storage.Record{Recorded: contract.Recorded{RunSeq: e.GetRunSeq(), PersistedAt: e.GetPersistedAt().AsTime().UnixNano(), Event: contract.Event{
				RunID: "run", Type: e.GetEventType(), StepID: e.GetStepId(), Payload: e.GetPayloadJson(),
				LogicalAttemptID: e.GetLogicalAttemptId(), EngineAttemptID: e.GetEngineAttemptId()}}})
			whole.apply(e)
			part.apply(e)
			if len(list) == cut { // A workflow tells again what it was told.
				status := part.Status
				part = &history{State: replay.New(), from: e.GetRunSeq()}
				part.LastSeq, part.Status = e.GetRunSeq(), status
			}
		}
		for name, h := range map[string]*history{"whole": whole, "part": part} {
			if name == "part" && waits {
				continue // Such a step may have begun before. This engine has none.
			}
			if got, want := h.Status.String(), snapshot.Status.String(); got != want {
				t.Fatalf("%s: the run is %s, and %s in the snapshot: %q", name, got, want, list)
			}
		}
		for id, step := range map[string]Step{"a": whole.step("a"), "b": whole.step("b")} {
			want := ""
			if s := snapshot.Step(id); s != nil {
				want = s.Status.String()
			}
			if ends := want == "SUCCESS" || want == "FAILED" || want == "SKIPPED"; ends && string(step.Status) != want || !ends && step.Status != "" {
				t.Fatalf("step %s is %+v, and %q in the snapshot: %q", id, step, want, list)
			}
		}
	})
}

// TestOneFunctionDecidesPRJ17: what the workflow is to append has an effect now if the contract
// says so of the status of the run, event by event.
func TestOneFunctionDecidesPRJ17(t *testing.T) {
	t.Parallel()
	types := []string{contract.RunQueued, contract.RunApproved, contract.RunStarted, contract.RunPaused, contract.RunResumed, contract.RunCompleted,
		contract.RunFailed, contract.RunCancelled, contract.StepSkipped, "Custom"}
	for s := contract.StatusPending; s <= contract.StatusCancelled; s++ {
		h := &history{State: &replay.State{Status: runlogv1.RunStatus_Value(s)}}
		for _, first := range types {
			next, legal := s.After(first)
			if got := h.allows([]Event{{Type: first}}); got != legal {
				t.Errorf("%s of a run that is %s: %t, want %t", first, s, got, legal)
			}
			for _, second := range types {
				_, both := next.After(second)
				if got, want := h.allows([]Event{{Type: first}, {Type: second}}), legal && both; got != want {
					t.Errorf("%s and %s of a run that is %s: %t, want %t", first, second, s, got, want)
				}
			}
		}
	}
}
