package wire

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc/wire/wiretest"
	"runlog/storage"
)

// someEvents draws events of one run: of any type and attempt, in any order, with gaps in runSeq.
func someEvents() *rapid.Generator[[]storage.Record] {
	types := []string{
		contract.RunStarted, contract.RunPaused, contract.RunResumed, contract.RunCompleted, contract.RunFailed,
		contract.SignalAccepted, contract.SignalRejected, contract.StepStarted, contract.StepStarted, contract.StepFailed,
		contract.StepFailed, contract.StepCompleted, contract.StepSkipped, contract.StepDelayed, contract.StepRetrying,
		contract.StepWaitingForAttestation, contract.StepAttested, contract.StepAttestationApproved, "Noted",
	}
	payloads := []string{
		`{}`, `{"error":{"code":"E1","message":"boom","retryable":true}}`, `{"reason":"why"}`, `{"outcome":"SUCCESS","attestedBy":"jane"}`,
		`{"outcome":"FAIL"}`, `{"artifacts":[{"uri":"s3://a","kind":"log"},{"uri":"s3://b","kind":"log","sizeBytes":7}]}`,
		`{"signalId":"s","signalType":"PAUSE"}`, `{"signalId":"t","signalType":"RETRY_STEP"}`, `{"startedAt":"2026-02-11T10:30:00Z"}`,
		`{"planRef":{"uri":"s3://p"},"engineType":"temporal","context":{"triggeredBy":"jane"}}`,
		`{"error":{"code":"E2"},"nextAttemptAt":"2026-02-11T10:30:00Z"}`,
	}
	return rapid.Custom(func(t *rapid.T) []storage.Record {
		var list []storage.Record
		seq := uint64(0)
		for range rapid.IntRange(0, 80).Draw(t, "events") {
			seq += rapid.Uint64Range(1, 3).Draw(t, "gap")
			r := storage.Record{Recorded: contract.Recorded{RunSeq: seq, PersistedAt: int64(seq), Event: contract.Event{
				Type: rapid.SampledFrom(types).Draw(t, "type"), RunID: "run", TenantID: "acme", EmittedAt: int64(seq),
				LogicalAttemptID: rapid.Uint32Range(1, 4).Draw(t, "attempt"), EngineAttemptID: rapid.Uint32Range(1, 4).Draw(t, "engine attempt"),
				Payload: []byte(rapid.SampledFrom(payloads).Draw(t, "payload")),
			}}}
			if contract.ScopeOf(r.Type) != contract.ScopeRun {
				r.StepID = rapid.SampledFrom([]string{"build", "test", "ship"}).Draw(t, "step")
			}
			list = append(list, r)
		}
		return list
	})
}

// TestDiffAppliedTR7: what differs between two moments, read in pages of any size and applied to
// the snapshot of the first moment, gives the snapshot of the second one. It names each field that
// differs, and nothing twice. A run does not differ from itself.
func TestDiffAppliedTR7(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := someEvents().Draw(t, "events")
		at := rapid.IntRange(0, len(events)).Draw(t, "from")
		from := run.ReduceAll(&run.Snapshot{RunID: "run", Status: run.Pending}, events[:at])
		to := run.ReduceAll(from, events[at:])
		if rapid.Bool().Draw(t, "folded from the first event") {
			to = run.ReduceAll(&run.Snapshot{RunID: "run", Status: run.Pending}, events)
		}
		q := PageOfDiff{Entries: rapid.IntRange(1, 100).Draw(t, "entries"), Bytes: rapid.SampledFrom([]int{1, 2000, AnswerBytes}).Draw(t, "bytes")}
		whole := wholeDiff(t, from, to, q)
		got := wiretest.Applied(t, encodeSnapshot(from), whole)
		if want := encodeSnapshot(to); !proto.Equal(got, want) {
			t.Fatalf("the diff %v\ngives %v\nwant %v", whole, got, want)
		}
		for _, s := range whole.Steps {
			if len(s.Changed) == 0 || proto.Equal(s.From, s.To) {
				t.Fatalf("a step that does not differ: %v", s)
			}
		}
		if same := wholeDiff(t, to, to, q); wiretest.Entries(same)+len(same.Changed) > 0 {
			t.Fatalf("a snapshot differs from itself: %v", same)
		}
	})
}

// TestDiffStepAppliedTR7: what each event of any run changed of its step, applied one by one, gives
// the step. So it looks at each entry that an event can change.
func TestDiffStepAppliedTR7(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &run.Snapshot{RunID: "run", Status: run.Pending}
		got := map[string]*runlogv1.StepSnapshot{}
		for _, e := range someEvents().Draw(t, "events") {
			next := run.ReduceAll(s, []storage.Record{e})
			if after := next.Step(e.StepID); after != nil {
				if got[e.StepID] == nil {
					got[e.StepID] = &runlogv1.StepSnapshot{StepId: e.StepID}
				}
				d, attempts := DiffStep(s.Step(e.StepID), after, e.LogicalAttemptID)
				wiretest.ApplyStep(t, got[e.StepID], d, attempts...)
			}
			s = next
		}
		for _, want := range encodeSnapshot(s).Steps {
			if !proto.Equal(got[want.StepId], want) {
				t.Fatalf("the changes give %v\nwant %v", got[want.StepId], want)
			}
		}
	})
}

// TestDiffStepOfManyAttemptsTR7: what an event changed of a step costs as much with many failures
// of its logical attempt, which any writer can append, as with few.
func TestDiffStepOfManyAttemptsTR7(t *testing.T) {
	allocated := func(failures int, logical uint32) float64 {
		s := &run.Snapshot{RunID: "run", Status: run.Pending}
		var events []storage.Record
		event := func(eventType string, attempt uint32, engine int) storage.Record {
			return storage.Record{Recorded: contract.Recorded{RunSeq: s.LastEventSeq + uint64(len(events)) + 1, Event: contract.Event{
				Type: eventType, RunID: "run", StepID: "a", LogicalAttemptID: attempt, EngineAttemptID: uint32(engine), Payload: []byte("{}"),
			}}}
		}
		for i := range failures {
			events = append(events, event(contract.StepFailed, 1, i+1))
		}
		s, events = run.ReduceAll(s, append(events, event(contract.StepStarted, logical, failures+1))), nil
		next := run.ReduceAll(s, []storage.Record{event(contract.StepFailed, 1, failures+2)})
		return testing.AllocsPerRun(10, func() {
			if d, attempts := DiffStep(s.Step("a"), next.Step("a"), 1); d == nil && len(attempts) == 0 {
				t.Fatal("nothing changed")
			}
		})
	}
	for _, current := range []uint32{1, 2} {
		if few, many := allocated(10, current), allocated(2000, current); many > few {
			t.Errorf("%v allocations with 2,000 failures, %v with 10; the current attempt is %d", many, few, current)
		}
	}
}

// wholeDiff puts the pages of a diff together.
func wholeDiff(t *rapid.T, from, to *run.Snapshot, q PageOfDiff) *runlogv1.DiffRunResponse {
	whole, more := Diff(from, to, q)
	for more {
		q.Skip = wiretest.Entries(whole)
		var page *runlogv1.DiffRunResponse
		page, more = Diff(from, to, q)
		if n := wiretest.Entries(page); n == 0 || n > q.Entries || n > 1 && proto.Size(page) > q.Bytes {
			t.Fatalf("a page of %d entries and %d bytes, asked for %+v", n, proto.Size(page), q)
		}
		wiretest.AddPage(whole, page)
	}
	return whole
}

// TestDiffNamesAllListsTR7: each list of a snapshot is compared as a list, and everything else of
// it by name. So a new field is compared, and a new list fails this test.
func TestDiffNamesAllListsTR7(t *testing.T) {
	lists := func(m proto.Message) (names []string) {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if f := fields.Get(i); f.Cardinality() == protoreflect.Repeated {
				names = append(names, string(f.Name()))
			}
		}
		return names
	}
	have := fmt.Sprint(lists(&runlogv1.RunSnapshot{}), lists(&runlogv1.StepSnapshot{}))
	want := "[steps artifacts signals inconsistencies pending_signals labels from_metadata] [artifacts attempts]"
	if have != want {
		t.Errorf("lists %s, want %s: Diff compares no other list", have, want)
	}
}
