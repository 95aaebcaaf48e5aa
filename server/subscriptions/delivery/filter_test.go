package delivery

import (
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
)

// TestLabelsAreReadOnceBUS9: what an event costs does not grow with a read of the store for each
// subscription to other labels.
func TestLabelsAreReadOnceBUS9(t *testing.T) {
	t.Parallel()
	store := openTerm(t).store
	appendOne(t, store, 0)
	now := &labels{store: store, runID: "run"}
	f := &filter{labels: map[string]string{"team": "a"}}
	for range 10 {
		if ok, err := f.matches(&storage.Record{}, now); ok || err != nil {
			t.Fatalf("a run without labels: %t, %v", ok, err)
		}
		now.store = nil // Another read would fail.
	}
}

// TestNoSubscriptionBUS9: without a subscription, the log is not read again.
func TestNoSubscriptionBUS9(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
	appendOne(t, term.store, 0)
	x := &tail{term: term} // To read, it would need a follower.
	if err := x.read(); err != nil {
		t.Fatal(err)
	}
	applied := term.store.Applied()
	if got, want := term.position(), applied.Position(); got != want || want == 0 {
		t.Errorf("the tail is at %d, want %d", got, want)
	}
}

// TestDetachedBUS9: while no subscriber is attached, such as one whose window is full, the tail
// reads nothing. A subscriber that has caught up counts again.
func TestDetachedBUS9(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
	s := routed(t, term)
	run := &storage.Run{}
	for range 2 {
		s.attach(s.window)
		if to := term.routes.Load(); !to.wants(run) || to.attached.Load() != 1 {
			t.Fatal("an attached subscriber is not counted")
		}
		term.routes.Store(newRoutes(term.subscribers)) // They keep the count.
		s.detachLocked()
		if to := term.routes.Load(); to.wants(run) || to.attached.Load() != 0 {
			t.Fatal("a detached subscriber is counted")
		}
	}
	appendOne(t, term.store, 0)
	x := &tail{term: term} // To read, it would need a follower.
	if err := x.read(); err != nil {
		t.Fatal(err)
	}
	s.window.Push(term.position())
	s.attach(s.window)
	appendOne(t, term.store, 1)
	x = term.newTail()
	if err := x.read(); err != nil {
		t.Fatal(err)
	}
	if n := s.window.Stats().Waiting; n != 1 {
		t.Errorf("%d events came after the subscriber was attached, want 1", n)
	}
}

// TestAttachBesideReadBUS6: an event that the tail has not decoded, because no subscriber wanted
// it, is read again for one that was attached right after that.
func TestAttachBesideReadBUS6(t *testing.T) {
	t.Parallel()
	term := openTerm(t)
	s := routed(t, term)
	other := &subscriber{term: term, number: 2} // The tail must read the log.
	other.beginLocked(&stored{State: &subscription.State{Subscription: subscription.Subscription{Name: subscription.Name{Tenant: "another", ID: "other"}, Number: 2}}})
	term.subscribers[2] = other
	other.attachLocked(true)
	term.routes.Store(newRoutes(term.subscribers))
	appendOne(t, term.store, 0)
	x := term.newTail()
	x.entries = term.store.Follow(storage.Whole).Only(func(r *storage.Run) bool {
		wanted := x.wants(r)
		if s.attach(s.window); !s.attached.Load() {
			t.Error("the subscriber is not attached")
		}
		return wanted
	})
	for range 2 {
		if err := x.read(); err != nil {
			t.Fatal(err)
		}
	}
	applied := term.store.Applied()
	if n := s.window.Stats().Waiting; n != 1 || term.position() != applied.Position() {
		t.Errorf("%d events came, and the tail is at %d of %d; want 1 event", n, term.position(), applied.Position())
	}
}

// routed makes a subscriber to all events of all tenants, from the first one on.
func routed(t *testing.T, term *term) *subscriber {
	t.Helper()
	s := &subscriber{term: term, number: 1}
	s.beginLocked(&stored{State: &subscription.State{Subscription: subscription.Subscription{Name: subscription.Name{ID: "s"}, Number: 1, Settings: subscription.Settings{MaxInFlight: 10}}}})
	s.settings.AckTimeout = time.Second // Consumers fetch.
	term.subscribers[1] = s
	term.routes.Store(newRoutes(term.subscribers))
	return s
}

// appendOne stores the n-th event of a run.
func appendOne(t *testing.T, store *storage.Store, n int) {
	t.Helper()
	op, err := storage.AppendOperation(&storage.Append{RunID: "run", Events: []contract.Event{storagetest.Event("run", n)}})
	applyOne(t, store, op, err)
}

// applyOne applies an operation and tells no term of it.
func applyOne(t *testing.T, store *storage.Store, op storage.Operation, err error) {
	t.Helper()
	var cmd storage.Command
	if err == nil {
		cmd, err = storage.EncodeCommand(op)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(cmd)
	if err == nil {
		_, err = store.Apply(store.Applied().Index+1, 1, p.Seal(1))
	}
	if err != nil {
		t.Fatal(err)
	}
}
