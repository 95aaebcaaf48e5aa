package delivery

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
	"runlog/storage/tail"
	"runlog/testbed/bubble"
	"runlog/testbed/seed"
)

type onlyStore struct {
	Node
	store *storage.Store
}

func (n onlyStore) Store() *storage.Store { return n.store }

// openTerm returns a term that does not run, with its router, of a store without subscriptions.
func openTerm(t *testing.T) (*term, *router) {
	local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	tail := tail.New(tail.Options{Store: local.Store})
	term := newTerm(ctx, &Options{
		Node: onlyStore{store: local.Store}, Tail: tail, Memory: &window.Memory{One: 1 << 20, All: 1 << 20}, Logger: slog.Default(),
		AckTimeout: func([]byte) time.Duration { return time.Second }, Clock: time.Now,
	})
	r, err := term.loadAll()
	if err != nil {
		t.Fatal(err)
	}
	tail.SetWhole(term.wants)
	t.Cleanup(func() {
		cancel()
		term.end(nil)
		if err := tail.Close(); err != nil {
			t.Error(err)
		}
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	return term, r
}

// joined makes a subscriber to all events of all tenants, from the first one on, whose window the
// store has nothing of. Consumers fetch.
func joined(t *testing.T, r *router) *subscriber {
	t.Helper()
	row := &subscription.Subscription{Name: subscription.Name{ID: "s"}, Number: 1, Settings: subscription.Settings{MaxInFlight: 10, MaxAttempts: 1}}
	s := r.newSubscriber(row, []placed{{0, filterOf(row)}})
	s.newer = nil
	s.begin(&stored{State: &subscription.State{Subscription: *row}})
	r.join(s)
	s.call(func() {})
	return s
}

// TestOlderRowLaterBUS2: rows that were read before others were reported replace none of them.
func TestOlderRowLaterBUS2(t *testing.T) {
	t.Parallel()
	term, _ := openTerm(t)
	first, second := &subscription.Subscription{Number: 1, Version: 1}, &subscription.Subscription{Number: 1, Version: 2}
	term.written(&subscription.Written{Changed: []*subscription.Subscription{second}}, 2)
	term.written(&subscription.Written{Changed: []*subscription.Subscription{first}}, 1)
	if term.pending[1].row != second {
		t.Error("an older row has replaced a newer one")
	}
	term.written(&subscription.Written{Removed: []uint64{1}}, 3)
	term.written(&subscription.Written{Changed: []*subscription.Subscription{second}}, 2)
	if term.pending[1].row != nil {
		t.Error("a subscription that was deleted is back")
	}
}

// TestPlacedFiltersBUS2: changes of a row that wait for the router keep their places, and are
// bounded: those that follow fast hold earlier.
func TestPlacedFiltersBUS2(t *testing.T) {
	t.Parallel()
	term, _ := openTerm(t)
	const changes = 3 * maxPlaced
	for i := range changes {
		row := &subscription.Subscription{Number: 1, Version: uint64(i + 1)}
		row.Settings.PlanID = string(rune('a' + i/2)) // Every second one changes no filter.
		term.written(&subscription.Written{Changed: []*subscription.Subscription{row}}, storage.Position(i+1))
	}
	list := term.pending[1].filters
	if len(list) != maxPlaced || list[0].at != 1 || list[len(list)-1].at != changes-1 {
		t.Errorf("%d filters, from %d to %d", len(list), list[0].at, list[len(list)-1].at)
	}
}

// TestTwoChangesInOnePassBUS2: between two passes, a filter takes more, an event comes, and the
// filter is that of before again. The event is delivered.
func TestTwoChangesInOnePassBUS2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		term, r := openTerm(t)
		s := joined(t, r)
		version := uint64(0)
		update := func(types ...string) {
			version++
			row := &subscription.Subscription{Name: s.name, Number: 1, Version: version, Settings: s.row.Settings}
			row.Settings.Types = types
			applied := term.store.Applied()
			term.written(&subscription.Written{Changed: []*subscription.Subscription{row}}, applied.Position())
		}
		pass := func() {
			if err := r.run(); err != nil {
				t.Fatal(err)
			}
			term.owners.Wait()
		}
		update("none")
		appendOne(t, term.store, 0)
		pass()
		update()
		appendOne(t, term.store, 1)
		update("none")
		appendOne(t, term.store, 2)
		pass()
		s.call(func() {
			list, err := s.take(&Consumer{s: s}, 10)
			if err != nil || len(list) != 1 || list[0].Record.RunSeq != 2 {
				t.Errorf("%+v, %v; want event 2", list, err)
			}
		})
	})
}

// TestReadBesidePassBUS6: while a subscriber reads up to the router, the router moves on. Each
// event comes once, whichever of the two is first, and none is missed.
func TestReadBesidePassBUS6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, readBesidePass) // In fake time, nothing is overdue: the term records nothing.
}

func readBesidePass(t *testing.T) {
	term, r := openTerm(t)
	s := joined(t, r)
	const events = 300
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() {
		for i := range events {
			appendOne(t, term.store, i)
		}
	})
	c := &Consumer{s: s, wake: make(chan struct{}, 1)}
	for got := uint64(0); got < events; {
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
		var list []Delivery
		s.call(func() { list, _ = s.take(c, 10) })
		for i := range list {
			if got++; list[i].Record.RunSeq != got {
				t.Fatalf("event %d comes when %d is due", list[i].Record.RunSeq, got)
			}
			c.Ack([]Ref{list[i].Ref()})
		}
	}
	s.call(func() {
		if st := s.window.Stats(); st.Waiting != 0 {
			t.Errorf("%+v: an event came twice", st)
		}
	})
}

// TestOneOwnerBUS3: mail, calls, timers and the router never have two owners of a subscription at a
// time, and all that was sent is done. The race detector finds a second one too.
func TestOneOwnerBUS3(t *testing.T) {
	t.Parallel()
	_, r := openTerm(t)
	s := joined(t, r)
	const each = 2000
	owners, done := 0, 0 // The owner's.
	do := func() {
		if owners++; owners != 1 {
			t.Error("two owners")
		}
		done++
		owners--
	}
	draws := seed.Rand(t)
	var tasks sync.WaitGroup
	for range 4 {
		own := rand.New(rand.NewPCG(draws.Uint64(), 0))
		tasks.Go(func() {
			for range each {
				switch own.IntN(4) {
				case 0:
					s.post(do)
				case 1:
					s.postRow(do)
				case 2:
					s.wake()
					fallthrough
				default:
					s.call(do)
				}
			}
		})
	}
	tasks.Wait()
	s.call(func() {
		if done != 4*each {
			t.Errorf("%d of %d were done", done, 4*each)
		}
	})
}

// TestCountsBUS6: the router knows how many subscribers have nothing due, although they come, are
// changed, sought, read and end. With a count that is too low, it would skip events.
func TestCountsBUS6(t *testing.T) {
	t.Parallel()
	term, r := openTerm(t)
	s := joined(t, r)
	want := func(when string, quiet int) {
		t.Helper()
		if s.call(func() {}); term.quiet != quiet {
			t.Errorf("%s: %d subscribers have nothing due, want %d", when, term.quiet, quiet)
		}
	}
	step := func() { s.call(func() { s.prepare(); s.step() }) }
	step()
	want("a subscriber that has read all", 1)
	for i := range 3 {
		appendOne(t, term.store, i)
	}
	if err := r.match(3); err != nil {
		t.Fatal(err)
	}
	step()
	want("after three events", 1)
	s.call(func() { term.makeDue(s, 2); term.makeDue(s, 1) })
	step()
	want("after a seek", 1)
	r.drop(s)
	want("without it", 0)
	r.passed(3, map[*subscriber]storage.Position{s: 3})
	s.call(func() { term.makeDue(s, 1); term.caughtUp(s, 3) })
	want("an event for one that is gone", 0)
	s.call(func() { s.close(ErrDeleted) })
}

// TestCloseTwiceBUS9: a subscription is deleted while the leadership ends. Its memory is given back
// once.
func TestCloseTwiceBUS9(t *testing.T) {
	t.Parallel()
	term, r := openTerm(t)
	s := joined(t, r)
	e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
	e.Record.RunSeq, e.Record.Position = 1, 1
	s.call(func() { s.window.Push(1, e) })
	s.call(func() { s.close(ErrNotLeader) })
	s.call(func() { s.close(ErrDeleted) })
	if used := term.opts.Memory.Used(); used != 0 {
		t.Errorf("%d bytes are in use after the end", used)
	}
	if !errors.Is(s.cause, ErrNotLeader) {
		t.Errorf("it ended with %v", s.cause)
	}
}

// TestTurnOfClosedBUS9: a subscriber that is closed while it waits for its turn to read the store
// gives the turn on.
func TestTurnOfClosedBUS9(t *testing.T) {
	t.Parallel()
	term, r := openTerm(t)
	s := joined(t, r)
	for range maxReads {
		if !term.askRead(s) {
			t.Fatal("no room for a read")
		}
	}
	s.call(func() { s.queued = !term.askRead(s) })
	s.call(func() { s.close(ErrDeleted) })
	for range maxReads {
		term.endRead()
	}
	if term.reads != 0 || len(term.turns) != 0 {
		t.Errorf("%d reads are under way, %d wait", term.reads, len(term.turns))
	}
}

// TestTurnOfRetryingBUS9: a subscriber whose turn to read the store comes while it waits before
// another try, such as to open its sink, gives the turn on.
func TestTurnOfRetryingBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		term, r := openTerm(t)
		s := joined(t, r)
		for range maxReads {
			if !term.askRead(s) {
				t.Fatal("no room for a read")
			}
		}
		s.call(func() { s.queued = !term.askRead(s) })
		s.call(func() { s.retryLater(errors.New("the sink cannot be opened")) })
		term.endRead()
		s.call(func() {
			if s.granted || s.queued || term.reads != maxReads-1 {
				t.Errorf("granted %t, queued %t, and %d reads are under way", s.granted, s.queued, term.reads)
			}
		})
		for range maxReads - 1 {
			term.endRead()
		}
	})
}

// TestFetchedByFullBUS9: a window that has become full while the store was read for it takes none
// of that. It is read again once there is room.
func TestFetchedByFullBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		term, r := openTerm(t)
		s := joined(t, r)
		c := &Consumer{s: s, wake: make(chan struct{}, 1)}
		pass := func() {
			if err := r.run(); err != nil {
				t.Fatal(err)
			}
			term.owners.Wait()
		}
		take := func(seq uint64) {
			t.Helper()
			var list []Delivery
			s.call(func() { list, _ = s.take(c, 10) })
			if len(list) != 1 || list[0].Record.RunSeq != seq {
				t.Fatalf("%+v, want event %d", list, seq)
			}
			c.Ack([]Ref{list[0].Ref()})
			term.owners.Wait()
		}
		appendOne(t, term.store, 0)
		pass()
		appendOne(t, term.store, 1)
		s.call(func() {
			from := s.window.ReadTo()
			b, err := tail.Read(term.store, term.store.Follow(storage.Whole), from, tail.Limits{Commits: 1, Events: 1, Bytes: 1})
			if err != nil || b == nil {
				t.Fatal(b, err)
			}
			term.opts.Memory.One = 1
			s.fetching, s.granted = true, term.askRead(s)
			s.fetched(s.window, b, from, b.To, nil)
			if st := s.window.Stats(); st.Waiting != 1 || s.window.ReadTo() != from || term.reads != 0 {
				t.Errorf("%+v, read to %d, %d reads are under way", st, s.window.ReadTo(), term.reads)
			}
		})
		pass()
		take(1)
		take(2)
	})
}
