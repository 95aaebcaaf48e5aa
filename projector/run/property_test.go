package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
)

// someRecords draws records of one run: of every type, in any order, for a few steps and attempts,
// with gaps in runSeq and now and then a record that comes again.
func someRecords() *rapid.Generator[[]storage.Record] {
	types := append(slices.Concat(runEventTypes, stepEventTypes, stepEventTypes, stepEventTypes),
		contract.RunStarted, contract.RunStarted, contract.RunPaused, contract.RunResumed,
		contract.SignalAccepted, contract.SignalRejected, "StepTeleported")
	return rapid.Custom(func(t *rapid.T) []storage.Record {
		var rs []storage.Record
		seq := uint64(0)
		for range rapid.IntRange(0, 60).Draw(t, "records") {
			step := rapid.Uint64Range(0, 8).Draw(t, "runSeq step")
			if step > 3 {
				step = 1
			}
			seq = max(seq+step, 1)
			eventType := rapid.SampledFrom(types).Draw(t, "type")
			stepID := ""
			if contract.ScopeOf(eventType) != contract.ScopeRun {
				stepID = rapid.SampledFrom([]string{"build", "test", "é\"\n"}).Draw(t, "step")
			}
			r := record(seq, eventType, stepID, rapid.Uint32Range(1, 4).Draw(t, "attempt"),
				string(somePayload().Draw(t, "payload")))
			r.EngineAttemptID = rapid.Uint32Range(1, 4).Draw(t, "engine attempt")
			rs = append(rs, r)
		}
		return rs
	})
}

// somePayload draws payloads that a producer would send, such with fields of any type, and garbage.
func somePayload() *rapid.Generator[[]byte] {
	at := rapid.SampledFrom([]any{"2026-02-11T10:30:00Z", "2026-02-11T11:30:00.125+01:00", "yesterday", 7, nil})
	reference := rapid.Custom(func(t *rapid.T) any {
		a := map[string]any{"uri": rapid.SampledFrom([]any{"s3://a", "s3://b", "", 5}).Draw(t, "uri"), "kind": "log"}
		if rapid.Bool().Draw(t, "size") {
			a["sizeBytes"] = rapid.Int64Range(-1, 1<<60).Draw(t, "bytes")
		}
		return a
	})
	failure := rapid.SampledFrom([]any{"boom", 3, map[string]any{"code": "E1", "message": "boom", "retryable": true},
		map[string]any{"category": "INFRA", "message": nil}})
	sent := rapid.Custom(func(t *rapid.T) []byte {
		p := map[string]any{}
		put := func(name string, v any) {
			if rapid.Bool().Draw(t, name+"?") {
				p[name] = v
			}
		}
		put("startedAt", at.Draw(t, "startedAt"))
		put("completedAt", at.Draw(t, "completedAt"))
		put("nextAttemptAt", at.Draw(t, "nextAttemptAt"))
		put("draining", rapid.Bool().Draw(t, "draining"))
		put("outcome", rapid.SampledFrom([]any{"SUCCESS", "FAIL", "FAILED", "MAYBE", 1}).Draw(t, "outcome"))
		put("artifacts", rapid.SliceOfN(reference, 0, 3).Draw(t, "artifacts"))
		put("error", failure.Draw(t, "error"))
		put("reason", rapid.OneOf(rapid.Map(rapid.String(), func(s string) any { return s }), jsonValue()).Draw(t, "reason"))
		put("planRef", map[string]any{"uri": "s3://p", "sizeBytes": "12"})
		put("context", map[string]any{"triggeredBy": rapid.SampledFrom([]any{"jane", "", 7}).Draw(t, "triggeredBy"), "triggerSource": "api"})
		put("signalId", "s-1")
		put("signalType", rapid.SampledFrom([]any{"PAUSE", "RESUME", "CANCEL", "RETRY_STEP", "SKIP_STEP", "EMERGENCY_STOP", "WAVE"}).Draw(t, "signal"))
		return mustJSON(t, p)
	})
	anything := rapid.Custom(func(t *rapid.T) []byte {
		name := rapid.SampledFrom([]string{"artifacts", "artifactRefs", "completedAt", "error", "planRef", "reason",
			"rootCause", "startedAt", "draining", "outcome"})
		return mustJSON(t, rapid.MapOfN(name, jsonValue(), 0, 6).Draw(t, "fields"))
	})
	return rapid.OneOf(sent, sent, anything, rapid.SliceOf(rapid.Byte()))
}

func mustJSON(t *rapid.T, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// listSnapshot has lists in the places of trees, whose shapes depend on the way to them.
type listSnapshot struct {
	Snapshot
	steps    []StepSnapshot
	attempts [][]*StepAttempt // of each step
}

func asLists(s *Snapshot) *listSnapshot {
	if s == nil {
		return nil
	}
	p := &listSnapshot{Snapshot: *s}
	p.memo = nil
	p.Steps = Steps{}
	for step := range s.Steps.All() {
		own := *step
		own.Attempts = Attempts{}
		p.steps = append(p.steps, own)
		p.attempts = append(p.attempts, slices.Collect(step.Attempts.All()))
	}
	return p
}

// deepCopy shares nothing with s that folding could reach.
func deepCopy(s *Snapshot) *Snapshot {
	if s == nil {
		return nil
	}
	c := *s
	c.Steps = Steps{}
	for step := range s.Steps.All() {
		own := *step
		own.StepAttempt = copyAttempt(step.StepAttempt)
		own.Attempts = Attempts{}
		for key, a := range step.Attempts.list.all() {
			attempt := copyAttempt(*a)
			own.Attempts.list.set(new(edit), key, &attempt)
		}
		c.Steps.put(new(edit), uint32(c.Steps.Len()), &own)
	}
	c.Artifacts = copyArtifacts(s.Artifacts)
	c.PlanRef = copyOf(s.PlanRef)
	c.RootCause = copyOf(s.RootCause)
	c.TotalDurationMs = copyOf(s.TotalDurationMs)
	c.Signals = slices.Clone(s.Signals)
	c.Inconsistencies = slices.Clone(s.Inconsistencies)
	return &c
}

func copyAttempt(a StepAttempt) StepAttempt {
	a.Artifacts = copyArtifacts(a.Artifacts)
	a.Error = copyOf(a.Error)
	if a.Retry = copyOf(a.Retry); a.Retry != nil {
		a.Retry.Error = copyOf(a.Retry.Error)
	}
	return a
}

func copyArtifacts(list []Artifact) []Artifact {
	list = slices.Clone(list)
	for i := range list {
		list[i].SizeBytes = copyOf(list[i].SizeBytes)
	}
	return list
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

func stored(s *Snapshot) []byte {
	if s == nil {
		return nil
	}
	return s.MarshalStored()
}

// However a run is cut into batches, and wherever its snapshot was put away and read back, the end
// is the same (PRJ-1).
func TestFoldingIsTheSameInAnyBatchesPRJ1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := someRecords().Draw(t, "run")
		want := ReduceAll(nil, rs)
		oneByOne := foldOneByOne(nil, rs)
		if !reflect.DeepEqual(asLists(oneByOne), asLists(want)) {
			t.Fatalf("one by one\n%s\nat once\n%s", stored(oneByOne), stored(want))
		}
		var s *Snapshot
		for rest := rs; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			s = ReduceAll(s, rest[:n])
			rest = rest[n:]
			if s != nil && rapid.Bool().Draw(t, "put away") {
				back, err := UnmarshalStored(s.MarshalStored())
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(asLists(back), asLists(s)) {
					t.Fatalf("read back\n%+v\nwas\n%+v", back, s)
				}
				s = back
			}
		}
		if !bytes.Equal(stored(s), stored(want)) {
			t.Fatalf("in batches\n%s\nat once\n%s", stored(s), stored(want))
		}
		if s != nil && s.Digest() != want.Digest() {
			t.Fatal("the digests differ")
		}
	})
}

// No snapshot that was once handed out changes, whatever is folded onto it, and twice (PRJ-1).
func TestInputsNeverChangePRJ1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := someRecords().Draw(t, "run")
		records := fmt.Sprintf("%+v", rs)
		var history, copies []*Snapshot
		var s *Snapshot
		for rest := rs; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 9)).Draw(t, "batch")
			s = ReduceAll(s, rest[:n])
			history, copies = append(history, s), append(copies, deepCopy(s))
			rest = rest[n:]
		}
		// A second future for each of them: both futures share the past and must not meet in it.
		other := someRecords().Draw(t, "another future")
		for _, s := range history {
			for i := range other {
				other[i].RunSeq += rs[len(rs)-1].RunSeq
			}
			ReduceAll(s, other)
			foldOneByOne(s, other)
		}
		for i := range history {
			if !reflect.DeepEqual(asLists(history[i]), asLists(copies[i])) {
				t.Fatalf("snapshot %d has changed\nto  %s\nwas %s", i, stored(history[i]), stored(copies[i]))
			}
		}
		if fmt.Sprintf("%+v", rs) != records {
			t.Fatal("the records have changed")
		}
	})
}

// Lists that grow have spare room behind their end, which two futures of one snapshot must not
// share.
func TestFuturesOfOneSnapshotDoNotMeetPRJ1(t *testing.T) {
	round := func(t *tape, attempt int, who string) {
		t.add(contract.SignalAccepted, "", 1, `{"signalId":"`+who+`"}`)
		t.add(contract.StepSkipped, "build", uint32(attempt), `{"reason":"`+who+`"}`)
		t.add(contract.StepFailed, "build", uint32(attempt+1), `{"error":"`+who+`"}`)
		t.add(contract.StepDelayed, "build", uint32(attempt+1), `{}`) // invalid
		t.add(contract.StepStarted, "step of "+who+fmt.Sprint(attempt), 1, `{}`)
	}
	past := newTape()
	past.add(contract.RunStarted, "", 1, `{}`)
	for n := 1; n <= 40; n++ {
		past.add(contract.StepDelayed, "build", uint32(2*n), `{}`)
		round(past, 2*n, "past")
		s := ReduceAll(nil, past.records)
		first, second := tape{slices.Clone(past.records)}, tape{slices.Clone(past.records)}
		round(&first, 2*n+2, "first")
		round(&second, 2*n+2, "second")
		one := ReduceAll(s, first.records)
		want := deepCopy(one)
		ReduceAll(s, second.records)
		foldOneByOne(s, second.records)
		if !reflect.DeepEqual(asLists(one), asLists(want)) {
			t.Fatalf("after %d rounds: the first future became\n%s\nwas\n%s", n, stored(one), stored(want))
		}
	}
}

// checkStep demands what holds between a snapshot and the next one.
func checkStep(t interface{ Fatalf(string, ...any) }, before, after *Snapshot, r *storage.Record) {
	if r.RunSeq <= before.watermark() {
		if after != before {
			t.Fatalf("PRJ-2: a record at or below the watermark made another snapshot")
		}
		return
	}
	if after.LastEventSeq != r.RunSeq {
		t.Fatalf("PRJ-2: watermark %d after runSeq %d", after.LastEventSeq, r.RunSeq)
	}
	if before == nil {
		before = &Snapshot{Status: Pending}
	}
	if before.Status.Terminal() && after.Status != before.Status {
		t.Fatalf("PRJ-4: %v became %v", before.Status, after.Status)
	}
	if contract.ScopeOf(r.Type) == contract.ScopeStep && after.Status != before.Status &&
		(r.Type != contract.StepWaitingForAttestation || before.Status != Running || after.Status != Waiting) {
		t.Fatalf("PRJ-5, PRJ-6: %s made a %v run %v", r.Type, before.Status, after.Status)
	}
	if n := int(after.FailedSteps) - int(before.FailedSteps); n > 1 || n < -1 ||
		n == 1 && r.Type != contract.StepFailed && r.Type != contract.StepAttested || n == -1 && r.Type != contract.StepStarted && r.Type != contract.StepCompleted {
		t.Fatalf("PRJ-15: %s added %d to failedSteps", r.Type, n)
	}
	if len(after.Inconsistencies) != int(min(after.InconsistencyCount, 100)) || len(after.Signals) > 20 {
		t.Fatalf("%d inconsistencies of %d, %d signals", len(after.Inconsistencies), after.InconsistencyCount, len(after.Signals))
	}
	steps := slices.Collect(after.Steps.All())
	for i, step := range slices.Collect(before.Steps.All()) {
		next := steps[i]
		if next.StepID != step.StepID || next.LogicalAttemptID < step.LogicalAttemptID {
			t.Fatalf("PRJ-7: step %q, attempt %d became %q, %d", step.StepID, step.LogicalAttemptID, next.StepID, next.LogicalAttemptID)
		}
		if next.LogicalAttemptID > step.LogicalAttemptID {
			continue
		}
		retried := step.Status == StepFailed && r.EngineAttemptID > step.OutcomeEngineAttemptID
		if step.Status.Terminal() && next.Status != step.Status && !retried || next.EngineAttemptID < step.EngineAttemptID {
			t.Fatalf("PRJ-6, PRJ-15: %v, engine attempt %d became %v, %d", step.Status, step.EngineAttemptID, next.Status, next.EngineAttemptID)
		}
	}
	if after.Steps.Len() > before.Steps.Len()+1 {
		t.Fatalf("PRJ-5: one event made %d steps", after.Steps.Len()-before.Steps.Len())
	}
	for i, step := range steps {
		if found, place := after.Steps.find(step.StepID); found != step || int(place) != i {
			t.Fatalf("step %q at %d is found as %+v at %d", step.StepID, i, found, place)
		}
		for a := range step.Attempts.All() {
			if a.LogicalAttemptID > step.LogicalAttemptID || a.LogicalAttemptID == step.LogicalAttemptID && a.Status != StepFailed {
				t.Fatalf("PRJ-7, PRJ-15: attempt %d of step %q, whose current one is %d", a.LogicalAttemptID, step.StepID, step.LogicalAttemptID)
			}
		}
	}
}

func TestEveryStepOfAFoldPRJ2PRJ4PRJ5PRJ6PRJ7(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := someRecords().Draw(t, "run")
		var s *Snapshot
		for i := range rs {
			next := Reduce(s, &rs[i])
			checkStep(t, s, next, &rs[i])
			s = next
		}
	})
}

// Other types, other watermark: nothing else (PRJ-2).
func TestUnknownTypesOnlyAdvancePRJ2(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := ReduceAll(nil, someRecords().Draw(t, "run"))
		if s == nil {
			return
		}
		eventType := rapid.String().Filter(func(s string) bool { return contract.TypeCode(s) == 0 }).Draw(t, "type")
		r := record(s.LastEventSeq+5, eventType, "build", 2, string(somePayload().Draw(t, "payload")))
		next := Reduce(s, &r)
		want := deepCopy(s)
		want.LastEventSeq, want.PersistedAt = r.RunSeq, r.Persisted()
		if !reflect.DeepEqual(asLists(next), asLists(want)) {
			t.Fatalf("%s changed\n   %s\nto %s", eventType, stored(s), stored(next))
		}
	})
}
