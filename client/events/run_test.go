package events_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"runlog/client/events"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

var run = events.Run{ID: "run-7", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3",
	EmittedBy: "engine", Clock: func() time.Time { return time.Unix(1000, 5) }}

// all makes an event with each method of Run that is about one type.
func all(r *events.Run, a events.Attempt, c events.Cause, payload any) map[string]func() (*runlogv1.EventWrite, error) {
	type build = func() (*runlogv1.EventWrite, error)
	ofRun := func(f func(events.Attempt, any) (*runlogv1.EventWrite, error)) build {
		return func() (*runlogv1.EventWrite, error) { return f(a, payload) }
	}
	ofStep := func(f func(string, events.Attempt, any) (*runlogv1.EventWrite, error)) build {
		return func() (*runlogv1.EventWrite, error) { return f("extract", a, payload) }
	}
	recurring := func(f func(events.Cause, any) (*runlogv1.EventWrite, error)) build {
		return func() (*runlogv1.EventWrite, error) { return f(c, payload) }
	}
	signal := func(f func(string, events.Cause, any) (*runlogv1.EventWrite, error)) build {
		return func() (*runlogv1.EventWrite, error) { return f("extract", c, payload) }
	}
	return map[string]build{
		"RunQueued": ofRun(r.Queued), "RunApproved": ofRun(r.Approved), "RunStarted": ofRun(r.Started), "RunCompleted": ofRun(r.Completed),
		"RunFailed": ofRun(r.Failed), "RunCancelled": ofRun(r.Cancelled), "RunPaused": recurring(r.Paused), "RunResumed": recurring(r.Resumed),
		"StepStarted": ofStep(r.StepStarted), "StepCompleted": ofStep(r.StepCompleted), "StepFailed": ofStep(r.StepFailed),
		"StepRetrying": ofStep(r.StepRetrying),
		"StepSkipped":  ofStep(r.StepSkipped), "StepDelayed": ofStep(r.StepDelayed),
		"StepWaitingForAttestation": ofStep(r.StepWaitingForAttestation), "StepAttested": ofStep(r.StepAttested),
		"SignalAccepted": signal(r.SignalAccepted), "SignalRejected": signal(r.SignalRejected),
	}
}

// TestKnownTypes (ENV-1, IDM-1, IDM-10): there is a method for each type of the contract. A server
// takes its event, and derives the same key.
func TestKnownTypes(t *testing.T) {
	payload := map[string]any{"outcome": "SUCCESS", "error": map[string]any{"message": "boom"}}
	builds := all(&run, events.Attempt{Logical: 2, Engine: 3}, events.Cause{SignalID: "s-1", Engine: 3}, payload)
	for code := uint32(1); ; code++ {
		name, known := contract.TypeName(code)
		if !known {
			if code < 18 {
				t.Errorf("the test saw %d types", code)
			}
			break
		}
		if builds[name] == nil {
			t.Errorf("there is no method for %s", name)
			continue
		}
		e, err := builds[name]()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		taken, err := contract.ValidateAll([]*runlogv1.EventWrite{e}, contract.Options{RunID: run.ID})
		if err != nil {
			t.Errorf("%s: a server refuses it: %v", name, err)
			continue
		}
		key := contract.DeriveKey(contract.Line2, run.ID, e.GetStepId(), 2, 3, name, run.Plan, run.PlanVersion)
		if contract.Recurs(name) {
			key = ""
		}
		if e.GetIdempotencyKey() != key || taken[0].IdempotencyKey != key || e.GetEventType() != name || e.GetEngineAttemptId() != 3 ||
			taken[0].AttemptAssigned != contract.Recurs(name) || !e.GetEmittedAt().AsTime().Equal(time.Unix(1000, 5)) || e.GetEmittedBy() != "engine" {
			t.Errorf("%s: got %v", name, e)
		}
	}
}

// TestEventsAreRefusedHere: what the contract refuses, the methods refuse, and they invent no
// number of an attempt.
func TestEventsAreRefusedHere(t *testing.T) {
	for name, build := range all(&run, events.Attempt{}, events.Cause{}, map[string]string{"outcome": "SUCCESS", "error": "boom"}) {
		_, err := build()
		var refused *contract.Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "ttempt") {
			t.Errorf("%s without attempts: %v", name, err)
		}
	}
	one := events.Attempt{Logical: 1, Engine: 1}
	for _, test := range []struct {
		field string
		build func() (*runlogv1.EventWrite, error)
	}{
		{"stepId", func() (*runlogv1.EventWrite, error) { return run.StepStarted("", one, nil) }},
		{"payload", func() (*runlogv1.EventWrite, error) { return run.Started(one, "no object") }},
		{"payload", func() (*runlogv1.EventWrite, error) { return run.Started(one, func() {}) }},
		{"tenantId", func() (*runlogv1.EventWrite, error) { return (&events.Run{ID: "r"}).Started(one, nil) }},
		{"eventType", func() (*runlogv1.EventWrite, error) { return run.Event("", "", one, nil) }},
	} {
		e, err := test.build()
		var refused *contract.Error
		if !errors.As(err, &refused) || e != nil || !strings.Contains(refused.Violations[0].Field, test.field) || strings.Contains(err.Error(), "events[") {
			t.Errorf("%s: got %v, %v", test.field, e, err)
		}
	}
}

// TestPayloads: JSON text stays as it is (ENV-8).
func TestPayloads(t *testing.T) {
	for want, payload := range map[string]any{"{}": nil, `{"a": 1}`: []byte(`{"a": 1}`), `{"b":  2}`: json.RawMessage(`{"b":  2}`), `{"c":3}`: map[string]int{"c": 3}} {
		e, err := run.StepStarted("extract", events.Attempt{Logical: 1, Engine: 1}, payload)
		if err != nil || string(e.GetPayloadJson()) != want {
			t.Errorf("got %s, want %s: %v", e.GetPayloadJson(), want, err)
		}
	}
}

// nothing has the JSON form null, as a pointer that is nil has.
type nothing struct{}

func (nothing) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// TestNilPayloads (ENV-8): a value of any type that is nil is an empty object, as nil is. JSON text
// that says null is none.
func TestNilPayloads(t *testing.T) {
	one := events.Attempt{Logical: 1, Engine: 1}
	for _, payload := range []any{
		map[string]any(nil), map[string]int(nil), (*struct{ A int })(nil), (*map[string]any)(nil), new(map[string]any), []byte(nil), []byte{},
		json.RawMessage(nil), (*json.RawMessage)(nil), new(json.RawMessage), any((*nothing)(nil)), nothing{}, []int(nil),
	} {
		e, err := run.StepCompleted("extract", one, payload)
		if err != nil || string(e.GetPayloadJson()) != "{}" {
			t.Errorf("%T: %s, %v", payload, e.GetPayloadJson(), err)
		}
	}
	for says, payload := range map[string]any{
		"a Go string": "text", "a Go int": 7, "a Go []int": []int{1}, "a Go *[]string": &[]string{"a"}, "a Go bool": true,
		"one JSON object": []byte("null"), "must be one JSON object": json.RawMessage(" null "), "JSON object": []byte("[1]"),
	} {
		_, err := run.StepCompleted("extract", one, payload)
		if err == nil || !strings.Contains(err.Error(), ": StepCompleted of step extract: payload ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%T %s: %v", payload, payload, err)
		}
	}
	if _, err := run.Started(one, "text"); err == nil || !strings.Contains(err.Error(), ": RunStarted: payload is a Go string") {
		t.Errorf("an event of the run: %v", err)
	}
}

// TestIDs: an id depends on the run and the key alone (IDM-4), until the server names another.
func TestIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z_]{1,6}`)
		r := run
		r.ID, r.IDs = text.Draw(t, "run"), events.NewIDs(0)
		step := text.Draw(t, "step")
		a := events.Attempt{Logical: rapid.Uint32Range(1, 3).Draw(t, "logical"), Engine: 1}
		first, err := r.StepCompleted(step, a, nil)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := uuid.Parse(first.GetEventId()); err != nil || id.Version() != 5 {
			t.Fatalf("the id is %q", first.GetEventId())
		}
		again := r
		again.IDs, again.EmittedBy = events.NewIDs(0), "another process"
		a.Engine = 9
		second, err := again.StepCompleted(step, a, map[string]int{"rows": 7})
		if err != nil || second.GetEventId() != first.GetEventId() {
			t.Errorf("the retry has id %s, the event %s: %v", second.GetEventId(), first.GetEventId(), err)
		}
		a.Logical++
		if other, err := r.StepCompleted(step, a, nil); err != nil || other.GetEventId() == first.GetEventId() {
			t.Errorf("another attempt has the same id: %v", err)
		}
		theirs := uuid.NewString()
		r.IDs.Learn(first, &runlogv1.AppendResult{EventId: theirs, Idempotent: true})
		if id := r.IDs.Of(first); id != theirs {
			t.Errorf("after the answer the id is %s, want the server's %s", id, theirs)
		}
	})
}

// TestIDsOfRecurringEvents: without a key, the cause tells them apart.
func TestIDsOfRecurringEvents(t *testing.T) {
	r := run
	r.IDs = events.NewIDs(2)
	seen := map[string]bool{}
	for _, signal := range []string{"s-1", "s-2", "s-1"} {
		for _, f := range []func(events.Cause, any) (*runlogv1.EventWrite, error){r.Paused, r.Resumed} {
			e, err := f(events.Cause{SignalID: signal, Engine: 1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			seen[e.GetEventId()] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d ids of two signals and two types", len(seen))
	}
}

func ExampleRun() {
	run := events.Run{ID: "run-7", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3", IDs: events.NewIDs(0)}
	// The platform runs this work for the third time; for the workflow it is the first attempt.
	e, err := run.StepCompleted("extract", events.Attempt{Logical: 1, Engine: 3}, map[string]int{"rows": 42})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.GetEventType(), e.GetStepId(), string(e.GetPayloadJson()))
	fmt.Println(e.GetIdempotencyKey()[:16], e.GetEventId())
	// Output:
	// StepCompleted extract {"rows":42}
	// bdad31e3a860357d 59eba881-0b7a-56c8-a0fe-5a86e774292b
}
