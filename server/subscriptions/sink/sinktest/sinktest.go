// Package sinktest helps the tests of sinks.
package sinktest

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"runlog/proto/contract"
	"runlog/server/subscriptions/cloudevent"
	"runlog/storage"
)

// Sink is a sink of any kind.
type Sink interface {
	Send(ctx context.Context, e *cloudevent.Event, done func(error))
	Close() error
}

// Event returns an event of a run. Its eventId depends on the runSeq alone.
func Event(runID string, seq uint64, payload string) *cloudevent.Event {
	id := contract.EventID{6: 0x40, 8: 0x80}
	binary.BigEndian.PutUint32(id[:], uint32(seq))
	return &cloudevent.Event{
		Record: &storage.Record{Position: storage.Position(seq), Recorded: contract.Recorded{
			Event: contract.Event{EventID: id, Type: "StepCompleted", RunID: runID, TenantID: "acme", Payload: []byte(payload)},
			// 2026-11-25T12:00:00.000000007Z
			RunSeq: seq, PersistedAt: 1795608000_000_000_007,
		}},
		Cluster: "c1", Position: "AQc",
	}
}

// Pending is an attempt that was begun.
type Pending struct{ outcome chan error }

// Begin begins an attempt. The test fails if done is called twice.
func Begin(ctx context.Context, t testing.TB, s Sink, e *cloudevent.Event) *Pending {
	t.Helper()
	p := &Pending{make(chan error, 1)}
	var calls atomic.Int32
	t.Cleanup(func() {
		if n := calls.Load(); n > 1 {
			t.Errorf("done was called %d times", n)
		}
	})
	s.Send(ctx, e, func(err error) {
		if calls.Add(1) == 1 {
			p.outcome <- err
		}
	})
	return p
}

// Wait returns the outcome.
func (p *Pending) Wait() error {
	return <-p.outcome
}

// Send makes one attempt, and returns its outcome.
func Send(t testing.TB, s Sink, e *cloudevent.Event) error {
	t.Helper()
	return Begin(t.Context(), t, s, e).Wait()
}

// Write writes a file below a directory, with its folders.
func Write(t testing.TB, dir, name, text string) {
	t.Helper()
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
