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

// openTerm returns a term that does not run, of a store without subscriptions.
func openTerm(t *testing.T) *term {
	local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	term, err := newTerm(context.Background(), &Options{
		Node: onlyStore{store: local.Store}, Memory: &window.Memory{One: 1, All: 1}, Logger: slog.Default(),
		AckTimeout: func([]byte) time.Duration { return 0 }, Clock: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return term
}

// TestOlderRowLaterBUS2: rows that were read before others were told of replace none of them.
func TestOlderRowLaterBUS2(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
	first, second := &subscription.Subscription{Number: 1, Version: 1}, &subscription.Subscription{Number: 1, Version: 2}
	term.written(&subscription.Written{Changed: []*subscription.Subscription{second}})
	term.written(&subscription.Written{Changed: []*subscription.Subscription{first}})
	if term.changed[1] != second {
		t.Error("an older row has replaced a newer one")
	}
	term.written(&subscription.Written{Removed: []uint64{1}})
	term.written(&subscription.Written{Changed: []*subscription.Subscription{second}})
	if row, is := term.changed[1]; !is || row != nil {
		t.Error("a subscription that was deleted is back")
	}
}

// TestAttachDuringCollectionBUS6: a subscriber that has read up to the tail, while the tail
// collects the events of the next entry, reads that entry itself: the tail may not have known of
// it.
func TestAttachDuringCollectionBUS6(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
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
	for _, at := range []storage.Position{6, 7} { // Entries without events follow it.
		s.batch = []*window.Event{e}
		if s.push(at); s.window.Stats().Waiting != 0 {
			t.Errorf("pushed up to %d: an entry came twice", at)
		}
	}
}
