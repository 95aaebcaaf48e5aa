package queue_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/storage/machine/queue"
	"runlog/storage/table"
)

// TestWrittenQUE6: an entry tells of the queues that it has changed, the first timer that it has
// set, and whether a run is exhausted. One that changes no queue tells nothing, nor does any after
// the watch has ended.
func TestWrittenQUE6(t *testing.T) {
	t.Parallel()
	b := open(t)
	t.Cleanup(func() { _ = b.Close() })
	var got []queue.Written
	stop := b.Store.WatchRows(queue.Kind, func(rows []table.Row) {
		w, err := queue.DecodeWritten(rows, true)
		if err != nil {
			t.Error(err)
		}
		got = append(got, w)
	})
	name := names[0]
	next := func(clock int64, c command) queue.Written {
		t.Helper()
		got = nil
		b.do(clock, c)
		if len(got) != 1 {
			t.Fatalf("told %d times", len(got))
		}
		return got[0]
	}
	change := queue.Change{MaxStartAttempts: proto.Uint32(1), MaxRunning: proto.Uint64(1)}
	if w := next(1, command{b.step(queue.Put(name, change))(func(m *model) error {
		m.put(name, &change)
		return nil
	})}); len(w.Queues) != 1 || w.Queues[0].Name != name || w.Queues[0].Leasable() != 0 {
		t.Errorf("a new queue: %+v", w)
	}
	next(2, b.enqueue(queue.RunRequest{Key: keyOf(1), Name: name, RunID: runID(1)}))
	if w := next(3, b.enqueue(queue.RunRequest{Key: keyOf(2), Name: name, RunID: runID(2)})); len(w.Queues) != 1 || w.Queues[0].Leasable() != 1 || w.Timer != 0 {
		t.Errorf("two runs and one slot: %+v", w)
	}
	if w := next(4, command{b.lease(queue.LeaseRequest{Worker: "w", Max: 1, TTL: 10})}); w.Queues[0].Leasable() != 0 || w.Timer != 14 {
		t.Errorf("a lease: %+v", w)
	}
	if w := next(20, command{b.tick(10)}); !w.Exhausted || w.Timer != 0 || w.Queues[0].Leasable() != 1 {
		t.Errorf("an expiry: %+v", w)
	}
	got = nil
	b.do(21, command{b.event("plain", name, "StepStarted", 0)})
	stop()
	b.do(22, command{b.lease(queue.LeaseRequest{Worker: "w", Max: 1, TTL: 10})})
	if len(got) != 0 {
		t.Errorf("told of %+v", got)
	}
}
