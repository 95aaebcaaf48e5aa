package delivery

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
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
	ctx, cancel := context.WithCancel(context.Background())
	term, err := newTerm(ctx, &Options{
		Node: onlyStore{store: local.Store}, Memory: &window.Memory{One: 1, All: 1}, Logger: slog.Default(),
		AckTimeout: func([]byte) time.Duration { return 0 }, Clock: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		term.end(nil)
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
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
	if s.attach(s.window); s.attached.Load() {
		t.Error("attached before an entry that is being collected")
	}
	s.window.Push(6)
	if s.attach(s.window); !s.attached.Load() || s.from != 6 {
		t.Errorf("attached: %t, from %d", s.attached.Load(), s.from)
	}
	e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
	e.Record.RunSeq, e.Record.Position = 1, 6
	for _, at := range []storage.Position{6, 7} { // Entries without events follow it.
		s.batch = []*window.Event{e}
		if s.push(at); s.window.Stats().Waiting != 0 {
			t.Errorf("pushed up to %d: an entry came twice", at)
		}
	}
}

// TestAttachBesideDecisionBUS6: while a subscriber is being attached, the tail either decodes the
// entry at hand or hears that it has to read it again.
func TestAttachBesideDecisionBUS6(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
	s := routed(t, term)
	x, run := &tail{term: term}, &storage.Run{}
	beside(t, 20_000, func() { s.attach(s.window) }, func() {
		for x.attached = 0; x.attached == 0; { // until it knows of the attach
			x.wants(run)
		}
	}, func(round int) {
		if x.declined && x.attached == term.attaches.Load() {
			t.Fatalf("round %d: the tail skips an entry for a subscriber that is attached", round)
		}
		s.detachLocked()
		term.attaches.Store(0)
	})
}

// TestSqueezeBesideRefreshBUS6: the routes know how many subscribers are attached, although memory
// is taken from one while others change. A count that is too low skips events.
func TestSqueezeBesideRefreshBUS6(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
	s := routed(t, term)
	e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
	e.Record.RunSeq, e.Record.Position = 1, 1
	begin := func() {
		s.window = window.New(s.settings, &source{s}, 0)
		s.window.Push(1, e)
		s.attach(s.window)
	}
	begin()
	beside(t, 20_000, s.squeeze, func() {
		term.tailing.Lock()
		defer term.tailing.Unlock()
		term.routes.Store(newRoutes(term.subscribers))
	}, func(round int) {
		if is, counted := s.attached.Load(), term.routes.Load().attached.Load(); is || counted != 0 {
			t.Fatalf("round %d: attached: %t, counted %d times", round, is, counted)
		}
		s.window.Close()
		begin()
	})
}

// beside calls a and b at the same time, in many rounds, and check after each.
func beside(t *testing.T, rounds int, a, b func(), check func(round int)) {
	t.Helper()
	if testing.Short() {
		rounds /= 10
	}
	var begun, ended atomic.Int64
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer begun.Store(-1)
	tasks.Go(func() {
		for round := int64(1); ; round++ {
			for begun.Load() >= 0 && begun.Load() < round {
				runtime.Gosched()
			}
			if begun.Load() < 0 {
				return
			}
			a()
			ended.Store(round)
		}
	})
	for round := range rounds {
		begun.Store(int64(round) + 1)
		b()
		for ended.Load() <= int64(round) {
			runtime.Gosched()
		}
		check(round)
	}
}

// TestCloseTwiceBUS9: a subscription is deleted while the leadership ends. Its memory is given back
// once.
func TestCloseTwiceBUS9(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
	s := routed(t, term)
	e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
	e.Record.RunSeq, e.Record.Position = 1, 1
	s.window.Push(1, e)
	s.close(ErrNotLeader)
	s.close(ErrDeleted)
	if used := term.opts.Memory.Used(); used != 0 {
		t.Errorf("%d bytes are in use after the end", used)
	}
}
