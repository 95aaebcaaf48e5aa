package delivery

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
)

type onlyStore struct {
	Node
	store *storage.Store
}

func (n onlyStore) Store() *storage.Store { return n.store }

// TestAttachDuringCollectionBUS6: a subscriber that has read up to the tail, while the tail
// collects the events of the next entry, reads that entry itself: the tail may not have known of
// it.
func TestAttachDuringCollectionBUS6(t *testing.T) {
	t.Parallel()
	local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All()})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	term, err := newTerm(context.Background(), &Options{
		Node: onlyStore{store: local.Store}, Memory: &window.Memory{One: 1, All: 1}, Logger: slog.Default(),
		AckTimeout: func([]byte) time.Duration { return 0 }, Clock: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &subscriber{term: term}
	s.beginLocked(&stored{State: &subscription.State{Subscription: subscription.Subscription{Position: 5}}})
	term.at.Store(5)
	term.collect(6)
	if s.attach(s.window); s.attached {
		t.Error("attached before an entry that is being collected")
	}
	s.window.Push(6)
	if s.attach(s.window); !s.attached || s.from != 6 {
		t.Errorf("attached: %t, from %d", s.attached, s.from)
	}
	e := &window.Event{Run: &storage.Run{RunID: "run"}}
	e.Record.RunSeq, e.Record.Position = 1, 6
	s.batch = []*window.Event{e}
	if s.push(6); s.window.Stats().Waiting != 0 {
		t.Error("an entry came twice")
	}
}
