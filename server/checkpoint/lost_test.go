package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"runlog/audit/proof"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

// TestRefusedRotations: rotations that were refused, however many, do not cost the key that is in
// use.
func TestRefusedRotations(t *testing.T) {
	g := newGroup(t, t.TempDir(), 1)
	defer g.close()
	n := g.nodes[0]
	if _, signed, err := n.sealer.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
		t.Fatal(signed, err)
	}
	// overloaded, disk full, no quorum: nothing was stored
	g.before = func(storage.Command) error { return errLost }
	for range manyTries {
		if _, err := n.sealer.Rotate(t.Context(), false); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
	}
	g.before = nil
	if _, ok := n.sealer.Seed(1); !ok {
		t.Error("the key in use is not given to other members any more")
	}
	// The node restarts.
	if err := n.sealer.Close(); err != nil {
		t.Fatal(err)
	}
	n.live(New(n.opts))
	if _, signed, err := n.sealer.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
		t.Errorf("after a restart: signed %t, %v: the cluster's only key is lost", signed, err)
	}
	if k, err := n.sealer.Rotate(t.Context(), false); err != nil || k.Endorsement == "" {
		t.Errorf("the next key is not endorsed: %+v, %v", k, err)
	}
}

// manyTries are more than a leader makes that comes and goes for a while.
const manyTries = 20

// TestLostFirstKey: a leader that makes the first key loses the leadership again and again before
// it is told what became of that. Whichever of its proposals the log has, or that of another node,
// it has the key.
func TestLostFirstKey(t *testing.T) {
	for _, taken := range []int{0, manyTries / 2, manyTries - 1, -1} { // -1: another node's
		t.Run(fmt.Sprint("taken-", taken), func(t *testing.T) {
			g := newGroup(t, t.TempDir(), 2)
			defer g.close()
			n, other := g.nodes[0], g.nodes[1]
			var proposed []storage.Command
			g.before = func(c storage.Command) error { proposed = append(proposed, c); return errLost }
			for range manyTries {
				if err := n.sealer.tend(t.Context(), true); !errors.Is(err, errLost) {
					t.Fatal(err)
				}
			}
			g.before = nil
			n.leads.Store(false)
			if taken >= 0 {
				g.apply(proposed[taken])
			} else {
				other.leads.Store(true)
				if err := other.sealer.tend(t.Context(), true); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range []*member{n, other} {
				if err := m.sealer.tend(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				if _, ok := m.sealer.Seed(1); !ok {
					t.Error("a node does not have the key that the log has")
				}
			}
		})
	}
}

// TestRestartBeforeReplay: the log has the new key, the store, which is opened behind the log, not
// yet.
func TestRestartBeforeReplay(t *testing.T) {
	g := newGroup(t, t.TempDir(), 1)
	defer g.close()
	n := g.nodes[0]
	if _, signed, err := n.sealer.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
		t.Fatal(signed, err)
	}
	var committed storage.Command
	// the node is killed once the log has it
	g.before = func(c storage.Command) error { committed = c; return errLost }
	if _, err := n.sealer.Rotate(t.Context(), false); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	g.before = nil
	if err := n.sealer.Close(); err != nil {
		t.Fatal(err)
	}
	n.leads.Store(false)
	n.live(New(n.opts))
	for n.sealer.signer.Load() == nil { // tendKey looks at once
		time.Sleep(time.Millisecond)
	}
	g.apply(committed) // the log is replayed
	n.leads.Store(true)
	if _, signed, err := n.sealer.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
		t.Errorf("signed %t, %v: the key that the log names is in no file any more", signed, err)
	}
}

// TestRotateWhileFetching: while the member that has the key does not answer no other key is made,
// unless the caller says that it is lost; once it answers, its key endorses the new one.
func TestRotateWhileFetching(t *testing.T) {
	for _, lost := range []bool{false, true} {
		g := newGroup(t, t.TempDir(), 3)
		a, b := g.nodes[0], g.nodes[1]
		g.append("run", 0, 1)
		b.silent.Store(true) // while the key is made
		if k, err := a.sealer.Rotate(t.Context(), false); err != nil || k.Number != 1 {
			t.Fatalf("the first key, which has none before it: %+v, %v", k, err)
		}
		b.silent.Store(false)
		silent := [][]byte{}
		b.seeds.Store(&silent)
		a.leads.Store(false)
		b.leads.Store(true)
		if k, err := b.sealer.Rotate(t.Context(), false); !errors.Is(err, ErrKeyMissing) {
			t.Errorf("rotated to %+v, %v", k, err)
		}
		if keys, err := signing.Keys(b.opts.Store); err != nil || len(keys) != 1 {
			t.Errorf("keys %v, %v", keys, err)
		}
		if !lost {
			b.seeds.Store(nil) // it answers again
		}
		if k, err := b.sealer.Rotate(t.Context(), lost); err != nil || k.Number != 2 || (k.Endorsement == "") != lost {
			t.Errorf("lost %t: rotated to %+v, %v", lost, k, err)
		}
		if _, signed, err := b.sealer.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
			t.Errorf("lost %t: signed %t, %v", lost, signed, err)
		}
		g.close()
	}
}

// TestRefreshFailsHalfWay: what a refresh of the tree that failed was to bring is brought by the
// next; until then the tree is that of the checkpoint before.
func TestRefreshFailsHalfWay(t *testing.T) {
	g := newGroup(t, t.TempDir(), 1)
	defer g.close()
	n, runs := g.nodes[0], []string(nil)
	for i := range 5 * storage.RunGroup {
		runs = append(runs, fmt.Sprint("run-", i))
		g.append(runs[i], 0, 1)
	}
	_, before := n.prove("run-0", true)
	for _, i := range []int{0, 2*storage.RunGroup + 1, 5*storage.RunGroup - 1} {
		g.append(runs[i], 1, 1)
	}
	heads, err := n.opts.Store.Heads()
	if err != nil {
		t.Fatal(err)
	}
	if len(heads.Changed) != 3 {
		t.Fatalf("changed are groups %v", heads.Changed)
	}
	heads.Runs++ // the last group has a run that nobody made, and cannot be read
	heads.Changed = append(heads.Changed, heads.Runs/storage.RunGroup)
	if _, err := n.sealer.refresh(t.Context(), heads); err == nil {
		t.Error("a run that is not there was read")
	}
	if err := heads.Close(); err != nil {
		t.Fatal(err)
	}
	if p, c := n.prove("run-0", false); c.Root != before.Root || p.Leaf.LastSeq != 1 {
		t.Errorf("the checkpoint before is one of runSeq %d, root %v, want %v", p.Leaf.LastSeq, c.Root, before.Root)
	}
	delete(n.sealer.pending, heads.Runs/storage.RunGroup) // nobody made it
	want := rootNow(t, n.opts.Store, runs)
	for _, run := range []string{"run-0", runs[len(runs)-1], "run-70"} {
		if _, c := n.prove(run, true); c.Root != want {
			t.Errorf("root %v, want %v", c.Root, want)
		}
	}
}

// TestWaitForTheKeyEnds: who wants the key while a rotation waits for the log can give up.
func TestWaitForTheKeyEnds(t *testing.T) {
	g := newGroup(t, t.TempDir(), 1)
	defer g.close()
	n := g.nodes[0]
	if _, signed, err := n.sealer.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
		t.Fatal(signed, err)
	}
	proposed, goOn, rotated := make(chan struct{}), make(chan struct{}), make(chan error)
	g.before = func(storage.Command) error { close(proposed); <-goOn; return nil }
	go func() {
		_, err := n.sealer.Rotate(context.Background(), false)
		rotated <- err
	}()
	<-proposed
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := n.sealer.Rotate(short, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another rotation: %v", err)
	}
	if _, ok := n.sealer.Seed(1); !ok {
		t.Error("another member is not given the key while it is being changed")
	}
	close(goOn)
	if err := <-rotated; err != nil {
		t.Error(err)
	}
}
