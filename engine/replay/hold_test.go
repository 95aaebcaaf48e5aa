package replay_test

import (
	"strings"
	"testing"

	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestHoldSIG3: only a RESUME of a run that a failed step holds lets it end as failed. Neither a
// retry, nor the resumption of another pause, nor another writer does, and a step that fails later
// holds the run again, by a RunPaused of the next logical attempt (IDM-9).
func TestHoldSIG3(t *testing.T) {
	t.Parallel()
	const held = "paused:1:STEP_FAILED"
	for _, tt := range []struct {
		events, resumes string
		attempt         uint32 // 0: the run is not held
	}{
		{"", "", 1},
		{"paused:4: resumed:x", "", 5},
		{held, "", 2},
		{held + " retry:a", "retry-a", 2},
		{held + " resume", "resume-", 2},
		{held + " resume retry:b retry:a", "retry-b", 2},
		{held + " resume pause retry:a", "", 2},
		{"paused:1: retry:a", "", 2},
		{held + " retry:a resumed:retry-a", "", 2},
		{held + " resumed:x", "", 2},
		{held + " resume resumed:x", "", 2},
		{"paused:1: resume resumed:resume-", "", 2},
		{held + " resume resumed:resume-", "", 0},
		{held + " resume resumed:resume- failed:a", "", 2},
	} {
		s := stateOf([]*runlogv1.EventRecord{
			event(1, contract.RunStarted, "", 1, nil), event(2, contract.StepFailed, "a", 1, nil), event(3, contract.StepFailed, "b", 1, nil),
		})
		for word := range strings.FieldsSeq(tt.events) {
			s.Apply(holding(s.LastSeq+1, word))
		}
		resume, _ := s.Resume()
		attempt, _, ok := s.Hold(&plan.Plan{Waits: true})
		if resume.ID != tt.resumes || attempt != tt.attempt || ok != (tt.attempt > 0) {
			t.Errorf("%q: resumed by %q, held by attempt %d, %t", tt.events, resume.ID, attempt, ok)
		}
		if _, _, ok := s.Hold(&plan.Plan{}); ok {
			t.Errorf("%q: held, and the plan does not wait", tt.events)
		}
	}
}

// holding makes the event of a word: what happens, and behind colons more of it.
func holding(seq uint64, word string) *runlogv1.EventRecord {
	parts := strings.Split(word+"::", ":")
	switch parts[0] {
	case "paused":
		return event(seq, contract.RunPaused, "", uint32(parts[1][0]-'0'), []byte(`{"reasonCode":"`+parts[2]+`"}`))
	case "resumed":
		e := event(seq, contract.RunResumed, "", 1, nil)
		e.CausedBySignalId = &parts[1]
		return e
	case "failed":
		e := event(seq, contract.StepFailed, parts[1], 1, nil)
		e.EngineAttemptId = 2
		return e
	}
	signal := map[string]string{"retry": "RETRY_STEP", "resume": "RESUME", "pause": "PAUSE"}[parts[0]]
	return event(seq, contract.SignalAccepted, parts[1], 1, []byte(`{"signalId":"`+parts[0]+"-"+parts[1]+`","signalType":"`+signal+`"}`))
}
