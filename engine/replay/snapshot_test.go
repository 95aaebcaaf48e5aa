package replay_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
)

// TestStatusIsThatOfTheSnapshotPRJ4: after any events, a state has the same status of the run and
// of each step as the snapshot, by which the authority decides about signals and ends of runs.
func TestStatusIsThatOfTheSnapshotPRJ4(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snapshot, stored := &run.Snapshot{Status: run.Pending}, map[string]bool{}
		var list []string
		events := anyEvents.Draw(t, "events")
		kept := events[:0]
		for _, e := range events {
			key := fmt.Sprint(e.GetEventType(), e.GetStepId(), e.GetLogicalAttemptId(), e.GetEngineAttemptId())
			var object map[string]any
			if stored[key] || e.GetLogicalAttemptId() == 0 || e.GetEngineAttemptId() == 0 || json.Unmarshal(e.GetPayloadJson(), &object) != nil {
				continue // The log has no such event.
			}
			switch outcome, _ := object["outcome"].(string); {
			case e.GetEventType() == contract.StepDelayed:
				continue // It opens an attempt in which nothing has been done.
			case e.GetEventType() == contract.StepAttested && outcome != "SUCCESS" && outcome != "FAIL":
				continue // Engines take it for FAIL.
			}
			stored[key] = true
			e.RunSeq = uint64(len(kept) + 1)
			kept = append(kept, e)
			list = append(list, fmt.Sprintf("%s %s %d.%d %s", e.GetEventType(), e.GetStepId(), e.GetLogicalAttemptId(), e.GetEngineAttemptId(), e.GetPayloadJson()))
			snapshot = run.Reduce(snapshot, &storage.Record{Recorded: contract.Recorded{RunSeq: e.GetRunSeq(), PersistedAt: e.GetPersistedAt().AsTime().UnixNano(), Event: contract.Event{
				RunID: "run", Type: e.GetEventType(), StepID: e.GetStepId(), Payload: e.GetPayloadJson(),
				LogicalAttemptID: e.GetLogicalAttemptId(), EngineAttemptID: e.GetEngineAttemptId(),
			}}})
		}
		state := stateOf(kept)
		if got, want := state.Status.String(), snapshot.Status.String(); got != want {
			t.Fatalf("the run is %s, and %s in the snapshot: %q", got, want, list)
		}
		for _, step := range state.Steps {
			want := snapshot.Step(step.ID)
			if want == nil || string(step.Status) != want.Status.String() || step.Attempt != want.LogicalAttemptID {
				t.Fatalf("step %+v\nin the snapshot %+v\n%q", step, want, list)
			}
		}
	})
}
