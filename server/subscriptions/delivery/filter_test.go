package delivery

import (
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestLabelsAreReadOnceBUS9: what an event costs does not grow with a read of the store for each
// subscription to other labels.
func TestLabelsAreReadOnceBUS9(t *testing.T) {
	t.Parallel()
	term, _ := openTerm(t)
	store := term.store
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
	term, r := openTerm(t)
	appendOne(t, term.store, 0)
	tail := term.opts.Tail
	defer func() { term.opts.Tail = tail }()
	term.opts.Tail, r.log = nil, nil // To read, it would need one of them.
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	applied := term.store.Applied()
	if got, want := term.position(), applied.Position(); got != want || want == 0 {
		t.Errorf("the router is at %d, want %d", got, want)
	}
}

// TestFullBUS9: while no window takes more, the router reads nothing, and no event is decoded as a
// whole. A subscriber that has caught up counts again.
func TestFullBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, full) // In fake time, nothing is overdue: the term records nothing.
}

func full(t *testing.T) {
	term, r := openTerm(t)
	s := joined(t, r)
	run := &storage.Run{}
	c := &Consumer{s: s, wake: make(chan struct{}, 1)}
	n := 0
	for range 2 {
		if !term.wants(run) {
			t.Fatal("a window with room is not counted")
		}
		for range 30 {
			appendOne(t, term.store, n)
			n++
		}
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
		s.call(func() { s.prepare(); s.step() })
		s.call(func() {
			if !s.window.Full() || s.reading || s.due == 0 {
				t.Errorf("full: %t, reading: %t, due %d", s.window.Full(), s.reading, s.due)
			}
		})
		if term.wants(run) || term.quiet != 0 {
			t.Fatal("a full window is counted")
		}
		log, tail := r.log, term.opts.Tail
		term.opts.Tail, r.log = nil, nil // To read, the router would need one of them.
		appendOne(t, term.store, n)
		n++
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
		term.opts.Tail, r.log = tail, log
		for got := 0; got < 31; {
			s.call(func() {
				list, err := s.take(c, 10)
				if err != nil {
					t.Fatal(err)
				}
				for i := range list {
					s.ack([]Ref{list[i].Ref()})
					got++
				}
				s.prepare()
				s.step()
			})
		}
		if term.quiet != 1 {
			t.Fatal("a subscriber that has caught up is not counted")
		}
	}
}

// TestFactsBUS6: an event that was decoded while no window took it is read again, as a whole.
func TestFactsBUS6(t *testing.T) {
	t.Parallel()
	term, r := openTerm(t)
	term.opts.Tail.SetWhole(nil)
	s := joined(t, r)
	appendOne(t, term.store, 0)
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 2; i++ { // The first one finds that.
		s.call(func() { s.prepare(); s.step() })
	}
	term.owners.Wait() // The store is read on a goroutine.
	c := &Consumer{s: s, wake: make(chan struct{}, 1)}
	s.call(func() {
		list, err := s.take(c, 1)
		if err != nil || len(list) != 1 || list[0].Record.RecordDigest == (contract.Digest{}) {
			t.Errorf("%d events, %v; want one with its digest", len(list), err)
		}
	})
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
		t.Error(err)
	}
}
