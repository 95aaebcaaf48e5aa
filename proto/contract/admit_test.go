package contract

import (
	"errors"
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

func asError(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%T %v is no *Error", err, err)
	}
	fields(t, e.Violations)
	if !strings.HasPrefix(e.Error(), string(e.Reason)+": ") || len(e.Message) > 600 {
		t.Errorf("message %q", e.Error())
	}
	return e
}

func repeat(n int, w *runlogv1.EventWrite) []*runlogv1.EventWrite {
	events := make([]*runlogv1.EventWrite, n)
	for i := range events {
		events[i] = w
	}
	return events
}

func TestAPP3Count(t *testing.T) {
	for n, ok := range map[int]bool{0: false, 1: true, 1000: true, 1001: false} {
		events, err := ValidateAll(repeat(n, benchEvent()), Options{})
		if (err == nil) != ok || ok && len(events) != n {
			t.Errorf("%d: %d events, %v", n, len(events), err)
		}
		if !ok {
			if e := asError(t, err); e.Reason != ReasonInvalidArgumentField || e.Violations[0].Field != "events" {
				t.Errorf("%d: %+v", n, e)
			}
		}
	}
}

func TestAPP3OneBadEventFailsAll(t *testing.T) {
	good := benchEvent()
	wrongKey := edited(func(w *runlogv1.EventWrite) { w.IdempotencyKey = "x" })
	tooLarge := edited(func(w *runlogv1.EventWrite) {
		w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"a":"` + strings.Repeat("x", 1000) + `"}`)}
	})
	bare := &runlogv1.EventWrite{EventType: "x|y"}
	o := Options{MaxPayloadBytes: 600, RunID: good.RunId}
	key := DeriveKey(Line2, good.RunId, good.StepId, 1, 1, good.EventType, good.PlanId, good.PlanVersion)
	for _, c := range []struct {
		name     string
		events   []*runlogv1.EventWrite
		reason   Reason
		first    string
		metadata map[string]string
		count    int
	}{
		{"key", []*runlogv1.EventWrite{good, wrongKey}, ReasonKeyMismatch, "events[1].idempotencyKey", map[string]string{"index": "1", "expected_key": key}, 1},
		{"size", []*runlogv1.EventWrite{good, good, tooLarge, wrongKey}, ReasonPayloadTooLarge, "events[2].payload", map[string]string{"index": "2", "max_bytes": "600"}, 2},
		{"field", []*runlogv1.EventWrite{bare, good, wrongKey}, ReasonInvalidArgumentField, "events[0].eventType", map[string]string{"index": "0"}, 10},
		{"none", []*runlogv1.EventWrite{good, nil}, ReasonInvalidArgumentField, "events[1].eventType", map[string]string{"index": "1"}, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, err := ValidateAll(c.events, o)
			e := asError(t, err)
			if events != nil || e.Reason != c.reason || e.Violations[0].Field != c.first || len(e.Violations) != c.count {
				t.Errorf("%+v", e)
			}
			if len(e.Metadata) != len(c.metadata) {
				t.Errorf("metadata %v", e.Metadata)
			}
			for k, v := range c.metadata {
				if e.Metadata[k] != v {
					t.Errorf("metadata %v, want %v", e.Metadata, c.metadata)
				}
			}
		})
	}
}

// An answer does not grow with what is wrong.
func TestAPP3ViolationsAreBounded(t *testing.T) {
	_, err := ValidateAll(repeat(1000, &runlogv1.EventWrite{}), Options{})
	e := asError(t, err)
	if len(e.Violations) != MaxViolations || e.Metadata["truncated"] != "true" || e.Metadata["index"] != "0" {
		t.Errorf("%d violations, %v", len(e.Violations), e.Metadata)
	}
}

// TestENV10RepeatedIDs: one eventId on two different events of a request is refused, whatever
// stands between them. An event that is sent twice is a duplicate, and an import keeps the ids of
// its log.
func TestENV10RepeatedIDs(t *testing.T) {
	const one, other, third = "01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002", "01890000-0000-7000-8000-000000000003"
	event := func(id, step string, attempt uint32) *runlogv1.EventWrite {
		return edited(func(w *runlogv1.EventWrite) {
			w.EventId, w.StepId, w.LogicalAttemptId, w.IdempotencyKey = id, step, attempt, ""
		})
	}
	resumed := func(id, cause string) *runlogv1.EventWrite {
		return edited(func(w *runlogv1.EventWrite) {
			w.EventId, w.EventType, w.StepId, w.LogicalAttemptId, w.IdempotencyKey, w.CausedBySignalId = id, "RunResumed", "", 0, "", cause
			w.PayloadForm = nil
		})
	}
	for name, c := range map[string]struct {
		events []*runlogv1.EventWrite
		bad    string // the field
	}{
		"in order":             {[]*runlogv1.EventWrite{event(one, "a", 1), event(other, "b", 1), event(third, "c", 1)}, ""},
		"in another order":     {[]*runlogv1.EventWrite{event(third, "a", 1), event(one, "b", 1), event(other, "c", 1)}, ""},
		"without ids":          {[]*runlogv1.EventWrite{event("", "a", 1), event("", "b", 1)}, ""},
		"the same event twice": {[]*runlogv1.EventWrite{event(one, "a", 1), event(one, "a", 1)}, ""},
		"side by side":         {[]*runlogv1.EventWrite{event(one, "a", 1), event(one, "b", 1)}, "events[1].eventId"},
		"another attempt":      {[]*runlogv1.EventWrite{event(one, "a", 1), event(one, "a", 2)}, "events[1].eventId"},
		"apart":                {[]*runlogv1.EventWrite{event(other, "a", 1), event(third, "b", 1), event(other, "c", 1)}, "events[2].eventId"},
		"one cause":            {[]*runlogv1.EventWrite{resumed(one, "s"), resumed(one, "s")}, ""},
		"two causes":           {[]*runlogv1.EventWrite{resumed(one, "s"), resumed(one, "s2")}, "events[1].eventId"},
	} {
		valid, err := ValidateAll(c.events, Options{})
		if c.bad == "" {
			if err != nil || len(valid) != len(c.events) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if e := asError(t, err); valid != nil || e.Reason != ReasonInvalidArgumentField || len(e.Violations) != 1 || e.Violations[0].Field != c.bad {
			t.Errorf("%s: %+v", name, e)
		}
		if _, err := ValidateAll(c.events, Options{RepeatedIDs: true}); err != nil {
			t.Errorf("%s, imported: %v", name, err)
		}
	}
}

// TestENV10ReservedIDs: the nil and the max UUID name no event.
func TestENV10ReservedIDs(t *testing.T) {
	for _, id := range []string{"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"} {
		_, bad := Validate(edited(func(w *runlogv1.EventWrite) { w.EventId = id }), Options{})
		if len(bad) != 1 || bad[0].Field != "eventId" || bad[0].Reason != ReasonInvalidArgumentField {
			t.Errorf("%s: %+v", id, bad)
		}
	}
}
