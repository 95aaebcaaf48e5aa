package replay_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

var types = []string{
	contract.RunQueued, contract.RunApproved, contract.RunStarted, contract.RunPaused, contract.RunResumed, contract.RunCompleted,
	contract.RunFailed, contract.RunCancelled, contract.StepStarted, contract.StepCompleted, contract.StepFailed, contract.StepSkipped,
	contract.StepDelayed, contract.StepWaitingForAttestation, contract.StepAttested, contract.SignalAccepted, contract.SignalRejected, "StepMeasured",
}

var payloads = []string{
	``, `{}`, `null`, `[]`, `{`, `{"output":{"rows":1}}`, `{"output":null}`, `{"outcome":"SUCCESS"}`, `{"outcome":"FAIL"}`, `{"outcome":1}`,
	`{"signalId":"s","signalType":"PAUSE"}`, `{"signalId":"s","signalType":"RESUME"}`, `{"signalId":"s","signalType":"CANCEL"}`,
	`{"signalId":"s","signalType":"EMERGENCY_STOP"}`, `{"signalId":"s","signalType":"SKIP_STEP"}`, `{"signalType":[]}`,
	`{"signalId":"s","signalType":"RETRY_STEP","nextLogicalAttemptId":2}`, `{"signalId":"s","signalType":"RETRY_STEP","nextLogicalAttemptId":"x"}`,
	`{"signalType":"RETRY_STEP","nextLogicalAttemptId":4294967295}`, `{"signalType":"RESUME","rejectReason":"ALREADY_RESUMED"}`,
	`{"reasonCode":"DEPENDENCY"}`, `{"reasonCode":"SIGNAL"}`,
	`{"contract":{"executor":"x","timeoutMinutes":5}}`,
}

// event makes an event. Its fields may contradict each other.
func event(seq uint64, eventType, step string, attempt uint32, payload []byte) *runlogv1.EventRecord {
	e := &runlogv1.EventRecord{
		EventType: eventType, RunSeq: seq, LogicalAttemptId: attempt, PersistedAt: timestamppb.New(time.Unix(int64(seq), 0)),
		PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: payload},
	}
	if step != "" {
		e.StepId = &step
	}
	return e
}

var anyEvents = rapid.Custom(func(t *rapid.T) []*runlogv1.EventRecord {
	list := make([]*runlogv1.EventRecord, rapid.IntRange(0, 40).Draw(t, "n"))
	for i := range list {
		list[i] = event(
			uint64(i+1), rapid.SampledFrom(types).Draw(t, "type"), rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "step"),
			rapid.SampledFrom([]uint32{0, 1, 1, 2, 3, math.MaxUint32}).Draw(t, "attempt"), []byte(rapid.SampledFrom(payloads).Draw(t, "payload")),
		)
		list[i].EngineAttemptId = rapid.Uint32Range(0, 2).Draw(t, "engine attempt")
	}
	return list
})

func stateOf(lists ...[]*runlogv1.EventRecord) *replay.State {
	s := replay.New()
	for _, list := range lists {
		for _, e := range list {
			s.Apply(e)
		}
	}
	return s
}

// chain is a plan in which each step depends on the one before.
func chain(t interface{ Fatal(args ...any) }) *plan.Plan {
	p, _, err := plan.Parse([]byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"a","type":"noop"},
		{"stepId":"b","type":"compute","dependsOn":["a"],"computeContract":{"executor":"x","inputs":[],"outputs":[],"verification":"operator_attest"}},
		{"stepId":"c","type":"noop","dependsOn":["b"]}]}`), plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPartsATT5: a state that has read the log in two parts, as a runner does that catches up, is
// the one that has read it at once. Events that come again change nothing.
func TestPartsATT5(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list, p := anyEvents.Draw(t, "events"), chain(t)
		cut := rapid.IntRange(0, len(list)).Draw(t, "cut")
		back := rapid.IntRange(0, cut).Draw(t, "back")
		whole, parts := stateOf(list), stateOf(list[:cut], list[back:], list)
		if !reflect.DeepEqual(whole, parts) {
			t.Fatalf("in parts %+v\nat once %+v", parts, whole)
		}
		one, err := whole.Walk(p)
		other, failed := parts.Walk(p)
		if fmt.Sprint(err) != fmt.Sprint(failed) || !reflect.DeepEqual(one, other) {
			t.Fatalf("walks %+v, %v and %+v, %v", one, err, other, failed)
		}
	})
}

// TestAnyOrderATT5: no order of events panics. What was ended stays so in its attempt, but for a
// failure that the platform retries, and a walk that the state gives agrees with it.
func TestAnyOrderATT5(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := anyEvents.Draw(t, "events")
		s, p := replay.New(), chain(t)
		for _, e := range list {
			ended, status := s.Ended(), s.Status
			before := map[string]replay.Step{}
			for _, step := range s.Steps {
				before[step.ID] = *step
			}
			s.Apply(e)
			if ended && s.Status != status {
				t.Fatalf("%s brings a run that is %v to %v", e.GetEventType(), status, s.Status)
			}
			for id, was := range before {
				is := s.Step(id)
				retried := was.Status == plan.Failed && e.GetEngineAttemptId() > 0
				if _, over := was.Result(); over && !retried && is.Attempt == was.Attempt && (is.Status != was.Status || string(is.Output) != string(was.Output)) {
					t.Fatalf("%s brings step %s from %s to %s", e.GetEventType(), id, was.Status, is.Status)
				}
			}
			checkWalk(t, s, p)
		}
	})
}

// checkWalk compares a state with the walk that it gives: every step of a log is executed, waits,
// has ended, or is decided again. Nothing but a retry and a skip of the walk is decided again.
func checkWalk(t *rapid.T, s *replay.State, p *plan.Plan) {
	w, err := s.Walk(p)
	if err != nil {
		return
	}
	open := 0
	for _, step := range s.Steps {
		want, ended := step.Result()
		got, over := w.Result(step.ID)
		if asked, ok := s.Asked(step.ID); ok && (asked.Type == "RETRY_STEP") != (step.Status == plan.Failed) || ok && ended && step.Status != plan.Failed {
			t.Fatalf("%+v is asked of a step that is %s", asked, step.Status)
		}
		switch again := ended && s.Attempt(step.ID) > step.Attempt; {
		case ended && !over && again:
		case ended != over || got.Status != want.Status:
			t.Fatalf("step %s is %s, and %s in the walk", step.ID, step.Status, got.Status)
		case !ended:
			open++
		}
		if !ended && step.Status != replay.Running && step.Status != replay.Waiting {
			t.Fatalf("step %s is %q: nothing goes on with it", step.ID, step.Status)
		}
		if s.Attempt(step.ID) < step.Attempt || s.SkipAttempt(step.ID) < step.Attempt {
			t.Fatalf("step %s goes on in attempt %d, or is skipped in %d: it is in %d", step.ID, s.Attempt(step.ID), s.SkipAttempt(step.ID), step.Attempt)
		}
	}
	if w.UnderWay() != open {
		t.Fatalf("%d steps are under way, and %d in the walk", open, w.UnderWay())
	}
}

// TestSignalsSIG2: the last of PAUSE and RESUME counts until the run follows it, and each signal
// has the place of its acceptance.
func TestSignalsSIG2(t *testing.T) {
	t.Parallel()
	signal := func(seq uint64, of string) *runlogv1.EventRecord {
		return event(seq, contract.SignalAccepted, "", 1, []byte(`{"signalId":"s","signalType":"`+of+`","reason":"r"}`))
	}
	started := event(1, contract.RunStarted, "", 1, nil)
	waiting := event(2, contract.StepWaitingForAttestation, "b", 1, []byte(`{}`))
	attested := event(3, contract.StepAttested, "b", 1, []byte(`{"outcome":"SUCCESS"}`))
	for _, tt := range []struct {
		events []*runlogv1.EventRecord
		want   []replay.Signal
	}{
		{[]*runlogv1.EventRecord{started, signal(2, "PAUSE")}, []replay.Signal{{ID: "s", Type: "PAUSE", Reason: "r", Seq: 2}}},
		{[]*runlogv1.EventRecord{started, signal(2, "PAUSE"), signal(3, "RESUME")}, nil},
		{[]*runlogv1.EventRecord{started, signal(2, "PAUSE"), event(3, contract.RunPaused, "", 1, nil), signal(4, "RESUME")}, []replay.Signal{{ID: "s", Type: "RESUME", Reason: "r", Seq: 4}}},
		{[]*runlogv1.EventRecord{started, waiting, attested, signal(4, "RESUME"), signal(5, "PAUSE")}, []replay.Signal{{ID: "s", Type: "PAUSE", Reason: "r", Seq: 5}}},
		{[]*runlogv1.EventRecord{started, waiting, attested, signal(4, "RESUME"), event(5, contract.RunResumed, "", 1, nil)}, nil},
		{[]*runlogv1.EventRecord{started, signal(2, "CANCEL"), event(3, contract.RunCancelled, "", 1, nil)}, nil},
		{[]*runlogv1.EventRecord{started, signal(2, "SKIP_STEP")}, nil},
	} {
		if s := stateOf(tt.events); !slices.Equal(s.Signals, tt.want) {
			t.Errorf("signals %+v, want %+v", s.Signals, tt.want)
		}
	}
	// A RESUME from before the attestation resumes nothing. One that is rejected as a repeat does.
	early := signal(3, "RESUME")
	late := event(4, contract.StepAttested, "b", 1, []byte(`{"outcome":"SUCCESS"}`))
	repeated := event(5, contract.SignalRejected, "", 1, []byte(`{"signalId":"t","signalType":"RESUME","rejectReason":"ALREADY_RESUMED"}`))
	for want, list := range map[uint64][]*runlogv1.EventRecord{0: {started, waiting, early, late}, 5: {started, waiting, early, late, repeated}} {
		if got, ok := stateOf([]*runlogv1.EventRecord{signal(1, "RESUME"), event(2, contract.RunStarted, "", 1, nil)}).Resume(); ok {
			t.Errorf("a run that runs resumes by %+v", got)
		}
		if got, ok := stateOf(list).Resume(); ok != (want > 0) || got.Seq != want {
			t.Errorf("resumes by %+v, %t, want %d", got, ok, want)
		}
	}
}

// TestWalkRefusesATT5: a log that is not that of the plan is refused.
func TestWalkRefusesATT5(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]*runlogv1.EventRecord{
		"unknown step": {event(1, contract.StepStarted, "z", 1, nil)},
		"too early":    {event(1, contract.StepStarted, "b", 1, nil)},
		"not skipped":  {event(1, contract.StepFailed, "a", 1, nil), event(2, contract.StepStarted, "b", 1, nil)},
		"skip ignored": {event(1, contract.StepSkipped, "a", 1, []byte(`{"reasonCode":"SIGNAL"}`)), event(2, contract.StepStarted, "b", 1, nil)},
	} {
		if _, err := stateOf(list).Walk(chain(t)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestForgedEndsSEC9SEC10: a compute step ends by its attestation, by an accepted SKIP_STEP, or by
// the plan. Its other events are any producer's word, whatever signal or reason they name, and the
// walk is refused.
func TestForgedEndsSEC9SEC10(t *testing.T) {
	t.Parallel()
	begun := []*runlogv1.EventRecord{event(1, contract.RunStarted, "", 1, nil), event(2, contract.StepCompleted, "a", 1, nil)}
	waits := event(3, contract.StepWaitingForAttestation, "b", 1, nil)
	skip := func(seq uint64, attempt uint32, reasonCode string) *runlogv1.EventRecord {
		e, cause := event(seq, contract.StepSkipped, "b", attempt, []byte(`{"reasonCode":"`+reasonCode+`"}`)), "SKIP_STEP"
		e.CausedBySignalId = &cause
		return e
	}
	for name, x := range map[string]struct {
		list   []*runlogv1.EventRecord
		forged bool
	}{
		"waits":                      {[]*runlogv1.EventRecord{waits}, false},
		"attested":                   {[]*runlogv1.EventRecord{waits, event(4, contract.StepAttested, "b", 1, []byte(`{"outcome":"SUCCESS"}`))}, false},
		"attested as failed":         {[]*runlogv1.EventRecord{waits, event(4, contract.StepAttested, "b", 1, []byte(`{"outcome":"FAIL"}`))}, false},
		"skipped before":             {[]*runlogv1.EventRecord{signalled(3, "SKIP_STEP", "b"), skip(4, 1, "SIGNAL")}, false},
		"skipped while it waits":     {[]*runlogv1.EventRecord{waits, signalled(4, "SKIP_STEP", "b"), skip(5, 2, "SIGNAL")}, false},
		"skipped by the plan":        {[]*runlogv1.EventRecord{skip(3, 1, "CONDITION")}, false},
		"started":                    {[]*runlogv1.EventRecord{event(3, contract.StepStarted, "b", 1, nil)}, true},
		"completed":                  {[]*runlogv1.EventRecord{waits, event(4, contract.StepCompleted, "b", 2, nil)}, true},
		"failed":                     {[]*runlogv1.EventRecord{waits, event(4, contract.StepFailed, "b", 1, nil)}, true},
		"skipped without a signal":   {[]*runlogv1.EventRecord{skip(3, 1, "SIGNAL")}, true},
		"skipped in the next":        {[]*runlogv1.EventRecord{waits, skip(4, 2, "OTHER")}, true},
		"skipped in the last":        {[]*runlogv1.EventRecord{skip(3, math.MaxUint32, "CONDITION")}, true},
		"skipped for another signal": {[]*runlogv1.EventRecord{waits, signalled(4, "SKIP_STEP", "c"), skip(5, 2, "SIGNAL")}, true},
		"skipped once more":          {[]*runlogv1.EventRecord{signalled(3, "SKIP_STEP", "b"), skip(4, 1, "SIGNAL"), skip(5, 2, "SIGNAL")}, true},
		"skipped before the signal":  {[]*runlogv1.EventRecord{skip(3, 1, "SIGNAL"), signalled(4, "SKIP_STEP", "b")}, true},
		"retried by the platform": {[]*runlogv1.EventRecord{waits, event(4, contract.StepAttested, "b", 1, []byte(`{"outcome":"FAIL"}`)),
			platform(event(5, contract.StepStarted, "b", 1, nil))}, true},
	} {
		if _, err := stateOf(begun, x.list).Walk(chain(t)); (err != nil) != x.forged {
			t.Errorf("%s: forged %t, got %v", name, x.forged, err)
		}
	}
}

// platform makes an event one of the platform's second try.
func platform(e *runlogv1.EventRecord) *runlogv1.EventRecord {
	e.EngineAttemptId = 2
	return e
}

// FuzzPayloads applies events with any payload: none panics, and what the state has is JSON.
func FuzzPayloads(f *testing.F) {
	for i, text := range payloads {
		f.Add(byte(i), text, text)
	}
	p := chain(f)
	f.Fuzz(func(t *testing.T, first byte, one, two string) {
		s := replay.New()
		s.Apply(event(1, contract.RunStarted, "", 1, nil))
		for i := range 2 * len(types) {
			payload := []byte([2]string{one, two}[i%2])
			s.Apply(event(uint64(i+2), types[(int(first)+i)%len(types)], [3]string{"a", "b", "c"}[i%3], uint32(i%2), payload))
		}
		for _, step := range s.Steps {
			if r, _ := step.Result(); len(r.Output) > 0 && !json.Valid(r.Output) {
				t.Errorf("the output of step %s is no JSON: %q", step.ID, r.Output)
			}
		}
		if w, err := s.Walk(p); err == nil {
			for d, more := w.Next(); more; d, more = w.Next() {
				if d.Kind == plan.Skip {
					continue
				}
				if r, ended := w.Result(d.Step.ID); ended {
					t.Errorf("step %s is decided, and is %s", d.Step.ID, r.Status)
				}
				if err := w.Done(d.Step.ID, plan.Result{Status: plan.Success}); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// TestOutcomeByItsNameATT4: an attestation has the outcome of the member of this name, as in the
// snapshot, and not that of a member in another case.
func TestOutcomeByItsNameATT4(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]plan.Status{
		`{"outcome":"SUCCESS"}`: plan.Success, `{"outcome":"FAIL","Outcome":"SUCCESS"}`: plan.Failed, `{"OUTCOME":"SUCCESS"}`: plan.Failed,
		`{"outcome":"SUCCESS","Outcome":"FAIL"}`: plan.Success, `{"outcome":["SUCCESS"]}`: plan.Failed, `{`: plan.Failed,
	} {
		s := stateOf([]*runlogv1.EventRecord{
			event(1, contract.RunStarted, "", 1, nil), event(2, contract.StepWaitingForAttestation, "b", 1, nil), event(3, contract.StepAttested, "b", 1, []byte(payload)),
		})
		if got := s.Step("b").Status; got != want {
			t.Errorf("%s: the step is %s, want %s", payload, got, want)
		}
	}
}
