package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// TestSnapshotPagesAreBoundedREAD8: whatever is large in a snapshot is divided over pages: steps,
// the attempts of one step, decisions, pending signals and artifacts. A page exceeds its bound only
// with one entry. The pages together are the snapshot.
func TestSnapshotPagesAreBoundedREAD8(t *testing.T) {
	text := strings.Repeat("x", 100)
	var records []storage.Record
	add := func(eventType, step string, attempt uint32, payload string) {
		records = append(records, storage.Record{Recorded: contract.Recorded{RunSeq: uint64(len(records) + 1), Event: contract.Event{
			Type: eventType, RunID: "run", StepID: step, LogicalAttemptID: attempt, EngineAttemptID: 1, Payload: []byte(payload),
		}}})
	}
	add(contract.RunStarted, "", 1, `{}`)
	for i := range 30 {
		add(contract.StepCompleted, fmt.Sprint("small-", i), 1, `{"artifacts":[{"uri":"`+fmt.Sprint(i, text)+`","kind":"k"}]}`)
		add(contract.SignalAccepted, "", 1, `{"signalId":"`+fmt.Sprint(i)+`","signalType":"PAUSE","reason":"`+text+`"}`)
		add(contract.StepFailed, "often", uint32(i+1), `{"error":{"code":"C","message":"`+text+`"}}`)
		add(contract.RunStarted, "", 1, `{}`) // an inconsistency
	}
	for i := range 30 {
		add(contract.SignalAccepted, fmt.Sprint("later-", i), 1, `{"signalId":"`+text+`","signalType":"SKIP_STEP"}`)
	}
	open := run.ReduceAll(nil, records) // with pending signals
	add(contract.RunCompleted, "", 1, `{}`)
	for _, s := range []*run.Snapshot{open, run.ReduceAll(nil, records)} {
		want := encodeSnapshot(s)
		e := Snapshots{limit: 1 << 20}
		for bytes := 500; bytes < proto.Size(want)+500; bytes += 97 {
			whole, count := divided(t, &e, s, bytes)
			if !proto.Equal(whole, want) {
				t.Fatalf("pages of %d bytes: got %v\nwant %v", bytes, whole, want)
			}
			if one := bytes >= proto.Size(want); one != (count == 1) {
				t.Errorf("%d pages of %d bytes for %d", count, bytes, proto.Size(want))
			}
		}
	}
}

// divided puts the pages of a snapshot together and counts them.
func divided(t *testing.T, e *Snapshots, s *run.Snapshot, bytes int) (whole *runlogv1.RunSnapshot, count int) {
	q := PageOfSnapshot{Bytes: bytes}
	for next := &q.From; next != nil; count++ {
		q.From = *next
		var shared *runlogv1.RunSnapshot
		shared, next = e.Page(s, nil, time.Time{}, q)
		data, err := proto.Marshal(shared)
		m := new(runlogv1.RunSnapshot)
		if err == nil {
			err = proto.Unmarshal(data, m)
		}
		if err != nil {
			t.Fatal(err)
		}
		entries := len(m.Steps) + len(m.Artifacts) + len(m.Signals) + len(m.PendingSignals)
		if len(m.Steps) == 1 && len(m.Steps[0].Attempts) > 1 {
			entries += len(m.Steps[0].Attempts)
		}
		if len(data) > bytes && entries > 1 || entries == 0 {
			t.Fatalf("page %d of %d bytes has %d, with %d entries", count+1, bytes, len(data), entries)
		}
		if whole == nil {
			whole = m
			continue
		}
		if last := len(whole.Steps) - 1; last >= 0 && len(m.Steps) > 0 && whole.Steps[last].StepId == m.Steps[0].StepId {
			whole.Steps[last].Attempts = append(whole.Steps[last].Attempts, m.Steps[0].Attempts...)
			m.Steps = m.Steps[1:]
		}
		whole.Steps = append(whole.Steps, m.Steps...)
		whole.Artifacts = append(whole.Artifacts, m.Artifacts...)
		whole.Signals = append(whole.Signals, m.Signals...)
		whole.PendingSignals = append(whole.PendingSignals, m.PendingSignals...)
	}
	return whole, count
}
