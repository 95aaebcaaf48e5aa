package storagetest

import (
	"encoding/json"
	"slices"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
)

// recurring are the types whose attempts the authority assigns where the producer leaves them out
// (IDM-10).
var recurring = []string{contract.RunPaused, contract.RunResumed, contract.SignalAccepted, contract.SignalRejected}

// causeOf is what an event says that it was caused by.
func causeOf(e *contract.Event) string {
	if e.CausedBySignalID != "" {
		return e.CausedBySignalID
	}
	var payload struct{ SignalID any }
	_ = json.Unmarshal(e.Payload, &payload)
	text, _ := payload.SignalID.(string)
	return text
}

// lastAttempt is the highest attempt of a type among events. Those from 2^31 on do not count.
func lastAttempt(typ string, events []contract.Event) (last uint32) {
	for i := range events {
		if events[i].Type == typ && events[i].LogicalAttemptID < 1<<31 {
			last = max(last, events[i].LogicalAttemptID)
		}
	}
	return last
}

// hasKey tells whether one of some events has a key.
func hasKey(key string, events []contract.Event) bool {
	return slices.ContainsFunc(events, func(e contract.Event) bool { return e.IdempotencyKey == key })
}

// sameCause is the first of some events that has the type and the cause of another; nil: none.
func sameCause(e *contract.Event, events []contract.Event) *contract.Event {
	for i := range events {
		if events[i].Type == e.Type && causeOf(&events[i]) == causeOf(e) {
			return &events[i]
		}
	}
	return nil
}

// attempt is IDM-10 for one event: the attempt and the key of the event that is stored for its
// cause, or else its own. before are the events of the run and the new ones of the request before
// it.
func (m *Model) attempt(runID string, i int, e *contract.Event, before []contract.Event) (uint32, string, error) {
	if same := sameCause(e, before); same != nil {
		return same.LogicalAttemptID, same.IdempotencyKey, nil
	}
	if last := lastAttempt(e.Type, before); (e.LogicalAttemptID <= last || hasKey(e.IdempotencyKey, before)) && m.bug != bugAttempt {
		return 0, "", &storage.AttemptError{RunID: runID, Index: i, Given: e.LogicalAttemptID, Last: last}
	}
	return e.LogicalAttemptID, e.IdempotencyKey, nil
}

// AssignAttempts does what an edge does before it proposes a request (IDM-10).
func (m *Model) AssignAttempts(a *storage.Append) {
	var stored []contract.Event
	if r := m.runs[a.RunID]; r != nil {
		stored = slices.Clone(r.stored)
	}
	events := slices.Clone(stored)
	for i := range a.Events {
		e := &a.Events[i]
		if e.AttemptAssigned {
			if same := sameCause(e, stored); same != nil {
				e.SetAttempt(same.LogicalAttemptID)
			} else {
				for attempt := lastAttempt(e.Type, events) + 1; ; attempt++ {
					if e.SetAttempt(attempt); !hasKey(e.IdempotencyKey, events) {
						break
					}
				}
			}
			stored = append(stored, *e)
		}
		events = append(events, *e)
	}
}

// cause has an event of a type that recurs name its cause, and often leave its attempt to the
// authority.
func (w *Workload) cause(t *rapid.T, e *contract.Event) {
	if !slices.Contains(recurring, e.Type) || e.Absent&contract.AbsentPlanVersion != 0 || rapid.IntRange(0, 3).Draw(t, "caused") == 0 {
		return
	}
	e.CausedBySignalID = rapid.SampledFrom([]string{"signal", "signal-2", "signal-3", "signal-4"}).Draw(t, "signal")
	e.AttemptAssigned = rapid.IntRange(0, 3).Draw(t, "attempt assigned") > 0
	if e.AttemptAssigned {
		e.KeyDerived = true
		e.SetAttempt(1)
	}
}

// attempts assigns the attempts of a request, seldom as the store must have them.
func (w *Workload) attempts(t *rapid.T, a *storage.Append) {
	w.Model.AssignAttempts(a)
	for i := range a.Events {
		if e := &a.Events[i]; e.AttemptAssigned {
			off := rapid.SampledFrom([]uint32{0, 0, 0, 0, 0, 0, 0, 0, 1, ^uint32(0)}).Draw(t, "attempt off by")
			e.SetAttempt(max(1, e.LogicalAttemptID+off))
		}
	}
}
