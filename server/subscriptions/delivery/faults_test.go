package delivery

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// broken is a source that cannot read.
type broken struct{}

var errBroken = errors.New("the disk is broken")

// Load is window.Source's.
func (broken) Load(string, uint64, storage.Position, int) ([]*window.Event, bool, error) {
	return nil, false, errBroken
}

// Letter is window.Source's.
func (broken) Letter(string, uint64) (*window.Event, error) { return nil, errBroken }

// TestReadFailsAmongEventsBUS8: if a read fails, a consumer gets the events that were taken before.
// They do not wait for their deadline.
func TestReadFailsAmongEventsBUS8(t *testing.T) {
	t.Parallel()
	_, r := openTerm(t)
	s := joined(t, r)
	s.call(func() {
		s.settings.MaxInFlight, s.settings.MaxLanes = 9, 9
		s.window = window.New(s.settings, broken{}, 9)
		e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
		e.Record.RunSeq, e.Record.Position = 1, 10
		s.window.Push(10, e)
		s.window.Owe("other", 1, 0) // It is read.
		c := &Consumer{s: s, wake: make(chan struct{}, 1)}
		s.consumers[c] = struct{}{}
		list, err := s.take(c, 9)
		if err != nil || len(list) != 1 || list[0].Record.RunSeq != 1 {
			t.Errorf("%d events, %v; want the one that was taken", len(list), err)
		}
		if _, err := s.take(c, 9); !errors.Is(err, errBroken) {
			t.Errorf("the next call: %v", err)
		}
	})
}

// TestMadeWhileTermBeginsBUS1: a term knows of a subscription that is made while it loads the
// others: it learns of the row before it reads them.
func TestMadeWhileTermBeginsBUS1(t *testing.T) {
	t.Parallel()
	term, r := openTerm(t)
	d := &Dispatcher{opts: *term.opts, next: term} // It has not begun.
	defer term.store.WatchRows(subscription.Kind, d.written)()
	name := subscription.Name{Tenant: "t", ID: "s"}
	op, err := subscription.Create(name, &subscription.Settings{Delivery: []byte("sink"), MaxInFlight: 1, MaxAttempts: 1}, subscription.Start{}, false)
	applyOne(t, term.store, op, err)
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	s := term.find(name)
	if s == nil {
		t.Fatal("the term does not know of the subscription")
	}
	s.call(func() {})
	s.call(func() {
		if s.unloaded {
			t.Error("the subscription was not loaded")
		}
	})
}

// TestLoadAgainBUS1: a subscriber that could not load what the store has loads it a second later.
func TestLoadAgainBUS1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		term, r := openTerm(t)
		d := &Dispatcher{opts: *term.opts, next: term}
		defer term.store.WatchRows(subscription.Kind, d.written)()
		name := subscription.Name{Tenant: "t", ID: "s"}
		op, err := subscription.Create(name, &subscription.Settings{Delivery: []byte("sink"), MaxInFlight: 1, MaxAttempts: 1}, subscription.Start{}, false)
		applyOne(t, term.store, op, err)
		closed, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All()})
		if err == nil {
			err = closed.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		sound := term.store
		term.store = closed.Store
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
		s := term.find(name)
		synctest.Wait()
		s.call(func() {
			if !s.unloaded || s.retryAt == 0 {
				t.Errorf("unloaded: %t, tries again at %d", s.unloaded, s.retryAt)
			}
			term.store = sound
		})
		time.Sleep(retryRead + time.Millisecond)
		synctest.Wait()
		s.call(func() {
			if s.unloaded || s.retryAt != 0 {
				t.Error("the subscription was not loaded")
			}
		})
	})
}

// TestErrorAgainBUS1: a subscriber that could not read tries again a second later. Until then it
// takes its mail.
func TestErrorAgainBUS1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		_, r := openTerm(t)
		s := joined(t, r)
		s.call(func() { s.retryLater(errBroken) })
		s.call(func() {
			if s.retryAt == 0 || s.hasWork() {
				t.Error("it tries again at once")
			}
		})
		time.Sleep(retryRead + time.Millisecond)
		synctest.Wait()
		s.call(func() {
			if s.retryAt != 0 {
				t.Error("it does not try again")
			}
		})
	})
}
