package replay_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// drawPlan draws a plan, the steps of which depend on earlier ones, with conditions.
func drawPlan(t *rapid.T) *plan.Plan {
	var steps []string
	for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
		var deps, when []string
		for j := range i {
			if rapid.Bool().Draw(t, "depends") {
				continue
			}
			deps = append(deps, fmt.Sprintf(`"s%d"`, j))
			if rapid.IntRange(0, 2).Draw(t, "when") == 0 {
				status := rapid.SampledFrom([]string{"SUCCESS", "FAILED", "SKIPPED", "ANY"}).Draw(t, "wanted")
				when = append(when, fmt.Sprintf(`{"step":"s%d","status":%q}`, j, status))
			}
		}
		more := ""
		if len(when) > 0 {
			more = `,"when":[` + strings.Join(when, ",") + `]`
		}
		kind := `"type":"noop"`
		if rapid.IntRange(0, 3).Draw(t, "compute") == 0 {
			kind = `"type":"compute","computeContract":{"executor":"x","inputs":[],"outputs":[],"verification":"operator_attest"}`
		}
		steps = append(steps, fmt.Sprintf(`{"stepId":"s%d",%s,"dependsOn":[%s]%s}`, i, kind, strings.Join(deps, ","), more))
	}
	p, _, err := plan.Parse([]byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[`+strings.Join(steps, ",")+`]}`), plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// world is a log, an engine that has only replay, and an authority that accepts what SIG-3 allows.
type world struct {
	*rapid.T
	p     *plan.Plan
	list  []*runlogv1.EventRecord
	s     *replay.State // of the engine, which has read the whole log
	w     *plan.Walk    // nil: a signal has come since
	keys  map[string]bool
	over  map[string]bool // the steps that have succeeded once
	most  int             // signals
	again map[string]bool // the steps that were retried
}

// write appends an event, which the engine has read then. No two events have the same key (IDM-1).
func (x *world) write(eventType, step string, attempt uint32, payload string) {
	if key := fmt.Sprint(eventType, step, attempt); eventType != contract.SignalAccepted && x.keys[key] {
		x.Fatalf("%s of attempt %d of step %s is there twice", eventType, attempt, step)
	} else {
		x.keys[key] = true
	}
	switch eventType {
	case contract.StepStarted, contract.StepWaitingForAttestation:
		if x.over[step] {
			x.Fatalf("step %s has succeeded, and begins again", step)
		}
	case contract.StepCompleted:
		x.over[step] = true
	}
	e := event(uint64(len(x.list)+1), eventType, step, attempt, []byte(payload))
	x.list = append(x.list, e)
	before := x.s.StepsSeq
	if x.s.Apply(e); eventType != contract.SignalAccepted && strings.HasPrefix(eventType, "Step") && x.s.StepsSeq == before {
		x.Fatalf("%s of attempt %d of step %s has no effect", eventType, attempt, step)
	}
}

// send has the authority decide about a signal to a step.
func (x *world) send() {
	id := rapid.SampledFrom(x.p.Steps).Draw(x.T, "signal to").ID
	step := x.s.Step(id)
	_, asked := x.s.Asked(id)
	ended := false
	if step != nil {
		_, ended = step.Result()
	}
	switch retry := rapid.Bool().Draw(x.T, "retry"); {
	case retry && step != nil && step.Status == plan.Failed && !asked:
		x.again[id] = true
		x.write(contract.SignalAccepted, id, 1, fmt.Sprintf(`{"signalId":"r","signalType":"RETRY_STEP","nextLogicalAttemptId":%d}`, step.Attempt+1))
	case !retry && !ended && !asked:
		x.write(contract.SignalAccepted, id, 1, `{"signalId":"k","signalType":"SKIP_STEP"}`)
	default:
		return
	}
	x.most--
	x.w = nil
}

// crash has another engine go on, which reads the log in one or two parts.
func (x *world) crash() {
	cut := rapid.IntRange(0, len(x.list)).Draw(x.T, "cut")
	s := stateOf(x.list[:cut], x.list)
	if !reflect.DeepEqual(s, x.s) {
		x.Fatalf("after a crash %+v\nbefore %+v", s, x.s)
	}
	x.s, x.w = s, nil
}

// act does the next thing of the engine; false: all steps have ended.
func (x *world) act() bool {
	if x.w == nil {
		for _, skip := range x.s.Skips() {
			x.write(contract.StepSkipped, skip.StepID, x.s.SkipAttempt(skip.StepID), `{"reasonCode":"SIGNAL"}`)
			return true
		}
		var err error
		if x.w, err = x.s.Walk(x.p); err != nil {
			x.Fatal(err)
		}
	}
	for _, step := range x.s.Steps {
		if _, ended := step.Result(); !ended {
			x.finish(step)
			return true
		}
	}
	d, more := x.w.Next()
	if !more {
		return false
	}
	id := d.Step.ID
	step, attempt := x.s.Step(id), x.s.Attempt(id)
	switch {
	case d.Kind == plan.Skip && step != nil && step.Status == plan.Skipped: // The log has it.
	case d.Kind == plan.Skip:
		x.write(contract.StepSkipped, id, attempt, `{"reasonCode":"`+d.Reason+`"}`)
	case d.Kind == plan.Attest:
		x.write(contract.StepWaitingForAttestation, id, attempt, `{}`)
	default:
		x.write(contract.StepStarted, id, attempt, `{}`)
	}
	return true
}

// finish ends a step.
func (x *world) finish(step *replay.Step) {
	ok := rapid.IntRange(0, 2).Draw(x.T, "succeeds") > 0
	switch {
	case step.Status == replay.Waiting:
		x.write(contract.StepAttested, step.ID, step.Attempt, fmt.Sprintf(`{"outcome":%q}`, map[bool]string{true: "SUCCESS", false: "FAIL"}[ok]))
	case ok:
		x.write(contract.StepCompleted, step.ID, step.Attempt, `{}`)
	default:
		x.write(contract.StepFailed, step.ID, step.Attempt, `{}`)
	}
	if x.w != nil {
		r, _ := x.s.Step(step.ID).Result()
		if err := x.w.Done(step.ID, r); err != nil {
			x.Fatal(err)
		}
	}
}

// TestRetriesAndSkipsSIG7: with any signals to steps at any time, and a crash between any two
// events, the engine goes on as before. Each attempt is there once, a step that has succeeded never
// begins again, and in the end each step stands as a walk with the last results decides, but for
// those that were executed before a step that they depend on was retried.
func TestRetriesAndSkipsSIG7(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := &world{T: t, p: drawPlan(t), s: replay.New(), keys: map[string]bool{}, over: map[string]bool{}, most: 12, again: map[string]bool{}}
		x.write(contract.RunStarted, "", 1, `{}`)
		for on := true; on; {
			switch what := rapid.IntRange(0, 5).Draw(t, "what"); {
			case what == 0 && x.most > 0:
				x.send()
			case what == 1:
				x.crash()
			default:
				on = x.act()
			}
		}
		x.check()
	})
}

// check compares the ends of the steps with a walk of the whole plan that gets the results of those
// which were executed, or skipped by a signal.
func (x *world) check() {
	w := plan.NewWalk(x.p)
	for d, more := w.Next(); more; d, more = w.Next() {
		step := x.s.Step(d.Step.ID)
		if step == nil {
			x.Fatalf("step %s is not decided", d.Step.ID)
		}
		result, ended := step.Result()
		executed := result.Status == plan.Success || result.Status == plan.Failed
		retried := false
		for _, id := range d.Step.DependsOn {
			retried = retried || len(x.s.Step(id).Earlier) > 0
		}
		switch {
		case !ended:
			x.Fatalf("step %s has not ended", step.ID)
		case d.Kind == plan.Skip && executed && !retried:
			x.Fatalf("step %s is %s, and is to be skipped: %s", step.ID, result.Status, d.Reason)
		case d.Kind == plan.Skip:
			// A walk takes no result of it: what it has skipped counts as SKIPPED, as in the log.
			if executed {
				return // The steps behind it follow from a result that this walk does not have.
			}
		case result.Status == plan.Skipped && !strings.Contains(string(step.Ended), "SIGNAL"):
			x.Fatalf("step %s was skipped by the plan, and is to be run", step.ID)
		default:
			if err := w.Done(step.ID, result); err != nil {
				x.Fatal(err)
			}
		}
	}
	if status, ended := w.Ended(); !ended || status == "" {
		x.Fatal(status, ended)
	}
}

// TestAskedSIG3: a RETRY_STEP is for a step that has failed, a SKIP_STEP for one that has not
// ended, and nothing is asked of a run that has ended. The engine takes what the log has, but for
// what the authority would have rejected.
func TestAskedSIG3(t *testing.T) {
	t.Parallel()
	const retry, skip = `{"signalId":"s","signalType":"RETRY_STEP","nextLogicalAttemptId":2}`, `{"signalId":"s","signalType":"SKIP_STEP"}`
	started := event(1, contract.RunStarted, "", 1, nil)
	for name, tt := range map[string]struct {
		before  []*runlogv1.EventRecord
		payload string
		want    uint32 // the attempt of the RETRY_STEP; 0: it is a SKIP_STEP
		ok      bool
	}{
		"retry of an unknown step":     {nil, retry, 0, false},
		"retry of a running step":      {[]*runlogv1.EventRecord{event(2, contract.StepStarted, "a", 1, nil)}, retry, 0, false},
		"retry of a waiting step":      {[]*runlogv1.EventRecord{event(2, contract.StepWaitingForAttestation, "a", 1, nil)}, retry, 0, false},
		"retry of a success":           {[]*runlogv1.EventRecord{event(2, contract.StepCompleted, "a", 1, nil)}, retry, 0, false},
		"retry of a skipped step":      {[]*runlogv1.EventRecord{event(2, contract.StepSkipped, "a", 1, nil)}, retry, 0, false},
		"retry of a failure":           {[]*runlogv1.EventRecord{event(2, contract.StepFailed, "a", 1, nil)}, retry, 2, true},
		"retry without an attempt":     {[]*runlogv1.EventRecord{event(2, contract.StepFailed, "a", 4, nil)}, `{"signalType":"RETRY_STEP"}`, 5, true},
		"retry of a later failure":     {[]*runlogv1.EventRecord{event(2, contract.StepFailed, "a", 4, nil)}, retry, 5, true},
		"retry of the last attempt":    {[]*runlogv1.EventRecord{event(2, contract.StepFailed, "a", 1<<32-1, nil)}, retry, 0, false},
		"retry after the end":          {[]*runlogv1.EventRecord{event(2, contract.StepFailed, "a", 1, nil), event(3, contract.RunFailed, "", 1, nil)}, retry, 0, false},
		"skip of an unknown step":      {nil, skip, 0, true},
		"skip of a running step":       {[]*runlogv1.EventRecord{event(2, contract.StepStarted, "a", 1, nil)}, skip, 0, true},
		"skip of a waiting step":       {[]*runlogv1.EventRecord{event(2, contract.StepWaitingForAttestation, "a", 1, nil)}, skip, 0, true},
		"skip of a success":            {[]*runlogv1.EventRecord{event(2, contract.StepCompleted, "a", 1, nil)}, skip, 0, false},
		"skip of a failure":            {[]*runlogv1.EventRecord{event(2, contract.StepFailed, "a", 1, nil)}, skip, 0, false},
		"skip of a skipped step":       {[]*runlogv1.EventRecord{event(2, contract.StepSkipped, "a", 1, nil)}, skip, 0, false},
		"skip after the end":           {[]*runlogv1.EventRecord{event(2, contract.RunFailed, "", 1, nil)}, skip, 0, false},
		"skip of a retry that waits":   {[]*runlogv1.EventRecord{event(2, contract.StepFailed, "a", 1, nil), event(3, contract.SignalAccepted, "a", 1, []byte(retry))}, skip, 2, true},
		"retry of a skip that waits":   {[]*runlogv1.EventRecord{event(2, contract.SignalAccepted, "a", 1, []byte(skip))}, retry, 0, true},
		"a skip that comes too late":   {[]*runlogv1.EventRecord{event(2, contract.SignalAccepted, "a", 1, []byte(skip)), event(3, contract.StepCompleted, "a", 1, nil)}, `{}`, 0, false},
		"a retry that the log shows":   {[]*runlogv1.EventRecord{event(2, contract.StepFailed, "a", 1, nil), event(3, contract.SignalAccepted, "a", 1, []byte(retry)), event(4, contract.StepStarted, "a", 2, nil)}, `{}`, 0, false},
		"a failure that is no failure": {[]*runlogv1.EventRecord{event(2, contract.StepSkipped, "a", 1, nil), event(3, contract.StepFailed, "a", 1, nil)}, retry, 0, false},
	} {
		s := stateOf([]*runlogv1.EventRecord{started}, tt.before)
		s.Apply(event(9, contract.SignalAccepted, "a", 1, []byte(tt.payload)))
		if got, ok := s.Asked("a"); ok != tt.ok || got.Attempt != tt.want {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
}

// TestPlatformRetriesPRJ15: a failure of the platform is none once a later engine attempt has
// succeeded, and what was skipped because of it runs. One of an earlier engine attempt changes
// nothing.
func TestPlatformRetriesPRJ15(t *testing.T) {
	t.Parallel()
	of := func(engine uint32, e *runlogv1.EventRecord) *runlogv1.EventRecord {
		e.EngineAttemptId = engine
		return e
	}
	for engine, want := range map[uint32]plan.Status{3: plan.Failed, 4: plan.Failed, 5: plan.Success} {
		s := stateOf([]*runlogv1.EventRecord{
			event(1, contract.RunStarted, "", 1, nil), of(1, event(2, contract.StepStarted, "a", 1, nil)), of(4, event(3, contract.StepFailed, "a", 1, nil)),
			of(1, event(4, contract.StepSkipped, "b", 1, []byte(`{"reasonCode":"DEPENDENCY"}`))), of(engine, event(5, contract.StepCompleted, "a", 1, []byte(`{"output":7}`))),
		})
		w, err := s.Walk(chain(t))
		if err != nil {
			t.Fatal(err)
		}
		d, _ := w.Next()
		if a := s.Step("a"); a.Status != want || d.Step.ID != "b" || (d.Kind == plan.Skip) != (want == plan.Failed) || s.Attempt("b") != 2 {
			t.Errorf("engine attempt %d: step %+v, then %+v", engine, a, d)
		}
	}
}

// TestRetryAtIDM11: a StepRetrying of the attempt that is executed says when its next try begins,
// until another event of the attempt. It changes nothing else.
func TestRetryAtIDM11(t *testing.T) {
	t.Parallel()
	s, at := replay.New(), time.Date(2026, 2, 11, 10, 0, 0, 0, time.UTC)
	seq := uint64(0)
	add := func(eventType string, attempt uint32) time.Time {
		seq++
		s.Apply(event(seq, eventType, "a", attempt, []byte(`{"nextAttemptAt":"2026-02-11T10:00:00Z"}`)))
		if step := s.Step("a"); step != nil {
			return step.RetryAt
		}
		return time.Time{}
	}
	s.Apply(event(1, contract.RunStarted, "", 1, nil))
	seq = 1
	for i, tt := range []struct {
		eventType string
		attempt   uint32
		retryAt   time.Time
	}{
		{contract.StepRetrying, 1, time.Time{}}, {contract.StepStarted, 1, time.Time{}}, {contract.StepRetrying, 2, time.Time{}},
		{contract.StepRetrying, 1, at}, {contract.StepCompleted, 1, time.Time{}}, {contract.StepRetrying, 1, time.Time{}},
	} {
		if got := add(tt.eventType, tt.attempt); !got.Equal(tt.retryAt) {
			t.Errorf("event %d, %s: the next try is at %v, want %v", i, tt.eventType, got, tt.retryAt)
		}
	}
	if step := s.Step("a"); step.Status != plan.Success || step.Attempt != 1 || s.StepsSeq != 6 {
		t.Errorf("step %+v at %d", step, s.StepsSeq)
	}
}

// TestOperatorsDecidePRJ8: what the snapshot does not take for the end of a step is none here: a
// step that waits for its attestation ends by that, and an attempt that has begun is not skipped.
func TestOperatorsDecidePRJ8(t *testing.T) {
	t.Parallel()
	started := event(1, contract.RunStarted, "", 1, nil)
	for name, tt := range map[string]struct {
		list []*runlogv1.EventRecord
		want plan.Status
	}{
		"completed while it waits": {[]*runlogv1.EventRecord{event(2, contract.StepWaitingForAttestation, "b", 1, nil), event(3, contract.StepCompleted, "b", 1, nil)}, replay.Waiting},
		"started while it waits":   {[]*runlogv1.EventRecord{event(2, contract.StepWaitingForAttestation, "b", 1, nil), event(3, contract.StepStarted, "b", 1, nil)}, replay.Waiting},
		"skipped while it runs":    {[]*runlogv1.EventRecord{event(2, contract.StepStarted, "b", 1, nil), event(3, contract.StepSkipped, "b", 1, nil)}, replay.Running},
		"skipped in the next":      {[]*runlogv1.EventRecord{event(2, contract.StepStarted, "b", 1, nil), event(3, contract.StepSkipped, "b", 2, nil)}, plan.Skipped},
		"attested while it runs":   {[]*runlogv1.EventRecord{event(2, contract.StepStarted, "b", 1, nil), event(3, contract.StepAttested, "b", 2, []byte(`{"outcome":"SUCCESS"}`))}, replay.Running},
	} {
		if s := stateOf([]*runlogv1.EventRecord{started}, tt.list); s.Step("b").Status != tt.want {
			t.Errorf("%s: %s, want %s", name, s.Step("b").Status, tt.want)
		}
	}
}
