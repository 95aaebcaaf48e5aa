package replay_test

import (
	"slices"
	"strings"
	"testing"

	"runlog/client/events"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// signalled is an accepted signal, the id of which is its type.
func signalled(seq uint64, kind, step string) *runlogv1.EventRecord {
	return event(seq, contract.SignalAccepted, step, 1, []byte(`{"signalId":"`+kind+`","signalType":"`+kind+`","reason":"why"}`))
}

// TestDueSIG6: whatever signals wait, engines answer them in one order, each once, and each answer
// names its signal. An engine that begins again at any place goes on alike.
func TestDueSIG6(t *testing.T) {
	t.Parallel()
	started, running := event(1, contract.RunStarted, "", 1, nil), event(2, contract.StepStarted, "a", 1, nil)
	waiting, paused := event(2, contract.StepWaitingForAttestation, "b", 1, nil), event(3, contract.RunPaused, "", 1, nil)
	for name, tt := range map[string]struct {
		list []*runlogv1.EventRecord
		want string
	}{
		"nothing":                {[]*runlogv1.EventRecord{started, running}, ""},
		"a pause":                {[]*runlogv1.EventRecord{started, signalled(2, "PAUSE", "")}, "RunPaused"},
		"a cancel after a pause": {[]*runlogv1.EventRecord{started, signalled(2, "PAUSE", ""), signalled(3, "CANCEL", "")}, "RunCancelled"},
		"a pause taken back":     {[]*runlogv1.EventRecord{started, signalled(2, "PAUSE", ""), signalled(3, "RESUME", "")}, ""},
		"a second pause":         {[]*runlogv1.EventRecord{started, running, paused, signalled(4, "PAUSE", "")}, ""},
		"a resume":               {[]*runlogv1.EventRecord{started, running, paused, signalled(4, "RESUME", "")}, "RunResumed"},
		"a skip and a pause":     {[]*runlogv1.EventRecord{started, running, signalled(3, "SKIP_STEP", "a"), signalled(4, "PAUSE", "")}, "RunPaused StepSkipped"},
		"a skip before its turn": {[]*runlogv1.EventRecord{started, running, signalled(3, "SKIP_STEP", "c")}, "StepSkipped"},
		"a skip in a pause":      {[]*runlogv1.EventRecord{started, running, paused, signalled(4, "SKIP_STEP", "c")}, ""},
		"a skip and a resume":    {[]*runlogv1.EventRecord{started, running, paused, signalled(4, "SKIP_STEP", "c"), signalled(5, "RESUME", "")}, "StepSkipped RunResumed"},
		"a skip of no step":      {[]*runlogv1.EventRecord{started, running, signalled(3, "SKIP_STEP", "none")}, ""},
		"a skip of what waits":   {[]*runlogv1.EventRecord{started, waiting, signalled(3, "SKIP_STEP", "b")}, "StepSkipped"},
		"a retry of what holds": {[]*runlogv1.EventRecord{started, running, event(3, "StepFailed", "a", 1, []byte(`{}`)),
			event(4, "RunPaused", "", 1, []byte(`{"reasonCode":"STEP_FAILED"}`)), signalled(5, "RETRY_STEP", "a")}, "RunResumed"},
		"a stop of what waits": {[]*runlogv1.EventRecord{started, waiting, signalled(3, "EMERGENCY_STOP", "")}, "RunCancelled"},
	} {
		p, list, got := chain(t), slices.Clone(tt.list), []string{}
		for len(got) < 5 {
			s := stateOf(list) // An engine that has begun again.
			signal, ok := s.Due(p)
			if !ok {
				break
			}
			e, err := s.Effect(&events.Run{ID: "run", Tenant: "t", Project: "p", Environment: "e", Plan: "p", PlanVersion: "1"}, signal, map[string]any{"more": 1})
			if err != nil {
				t.Fatal(name, err)
			}
			if payload := string(e.GetPayloadJson()); e.GetCausedBySignalId() != signal.ID || !strings.Contains(payload, `"more":1`) || !strings.Contains(payload, `"reason":"`) {
				t.Errorf("%s: %s is caused by %q, and says %s", name, e.GetEventType(), e.GetCausedBySignalId(), payload)
			}
			got = append(got, e.GetEventType())
			list = append(list, event(uint64(len(list)+1), e.GetEventType(), e.GetStepId(), e.GetLogicalAttemptId(), e.GetPayloadJson()))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", name, got, tt.want)
		}
	}
}
