package wire

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// folded is the snapshot of a run with one step.
func folded(id string) *run.Snapshot {
	event := func(seq uint64, eventType, step string) storage.Record {
		return storage.Record{Recorded: contract.Recorded{RunSeq: seq, Event: contract.Event{Type: eventType, RunID: id, StepID: step, LogicalAttemptID: 1,
			Payload: []byte(`{"completedAt":"2026-02-11T10:30:00Z"}`)}}}
	}
	return run.ReduceAll(nil, []storage.Record{event(1, contract.RunStarted, ""), event(2, contract.StepCompleted, "build")})
}

// whole asks for a snapshot in one page.
var whole = PageOfSnapshot{Bytes: MostAnswerBytes}

func encodeSnapshot(s *run.Snapshot) *runlogv1.RunSnapshot {
	m, _ := encodePage(s, whole, whole.Bytes)
	return m
}

func (e *Snapshots) message(s *run.Snapshot) *runlogv1.RunSnapshot {
	m, _ := e.Page(s, nil, time.Time{}, whole)
	return m
}

// TestEncodingsAreTheMessage: what is kept of a snapshot is sent as its message is, and what is
// added goes to one reader.
func TestEncodingsAreTheMessage(t *testing.T) {
	e := Snapshots{limit: 1 << 20}
	s := folded("run")
	for _, substatus := range []string{"", "DRAINING", ""} {
		m := e.message(s)
		m.Substatus = Optional(substatus)
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, want := new(runlogv1.RunSnapshot), encodeSnapshot(s)
		if err := proto.Unmarshal(data, got); err != nil {
			t.Fatal(err)
		}
		want.Substatus = Optional(substatus)
		if !proto.Equal(got, want) {
			t.Errorf("snapshot with substatus %q:\n got %v\nwant %v", substatus, got, want)
		}
	}
	if e.bytes == 0 || s.Encoded().Load() == nil {
		t.Error("nothing was kept")
	}
	if m := e.message(new(run.Snapshot)); len(m.Digest) == 0 {
		t.Error("a snapshot of which nothing is kept has no message")
	}
}

// TestEncodingsAreBounded: what was kept first goes when there is too much, and what is too large
// is not kept at all.
func TestEncodingsAreBounded(t *testing.T) {
	one := proto.Size(encodeSnapshot(folded("run-0")))
	e := Snapshots{limit: 20 * one}
	var all []*run.Snapshot
	for i := range 50 {
		s := folded("run-" + string(rune('0'+i%10)))
		e.message(s)
		all = append(all, s)
		if e.bytes > e.limit || e.bytes != one*len(e.queue) {
			t.Fatalf("%d bytes are kept of %d snapshots, at most %d may be", e.bytes, len(e.queue), e.limit)
		}
	}
	for i, s := range all {
		if kept := s.Encoded().Load() != nil; kept != (i >= 30) {
			t.Errorf("snapshot %d: kept %v", i, kept)
		}
	}
	small := Snapshots{limit: 15 * one}
	s := folded("run-0")
	if run := small.message(s).RunId; run != "run-0" || s.Encoded().Load() != nil {
		t.Errorf("a large snapshot: run %q, kept %v", run, s.Encoded().Load() != nil)
	}
}
