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
	"runlog/testbed/bubble"
)

// TestRefusedRotations: rotations that were refused, however many, do not cost the key that is in
// use.
func TestRefusedRotations(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, t.TempDir(), 1)
		defer g.close()
		n := g.nodes[0]
		if _, signed, err := n.maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
			t.Fatal(signed, err)
		}
		// overloaded, disk full, no quorum: nothing was stored
		g.before = func(storage.Command) error { return errLost }
		for range manyTries {
			if _, err := n.maker.Rotate(t.Context(), false); !errors.Is(err, errLost) {
				t.Fatal(err)
			}
		}
		g.before = nil
		if _, ok := n.maker.Seed(1); !ok {
			t.Error("the key in use is not given to other members any more")
		}
		// The node restarts.
		if err := n.maker.Close(); err != nil {
			t.Fatal(err)
		}
		n.live(New(n.opts))
		if _, signed, err := n.maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
			t.Errorf("after a restart: signed %t, %v: the cluster's only key is lost", signed, err)
		}
		if k, err := n.maker.Rotate(t.Context(), false); err != nil || k.Endorsement == "" {
			t.Errorf("the next key is not endorsed: %+v, %v", k, err)
		}
	})
}

// manyTries is more than an unstable leader makes.
const manyTries = 20

// TestLostFirstKey: a leader that makes the first key loses its leadership repeatedly before it
// learns the outcome. Whichever proposal the log accepts, its own or another node's, it has the
// key.
func TestLostFirstKey(t *testing.T) {
	for _, taken := range []int{0, manyTries / 2, manyTries - 1, -1} { // -1: another node's
		t.Run(fmt.Sprint("taken-", taken), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGroup(t, t.TempDir(), 2)
				defer g.close()
				n, other := g.nodes[0], g.nodes[1]
				var proposed []storage.Command
				g.before = func(c storage.Command) error { proposed = append(proposed, c); return errLost }
				for range manyTries {
					if err := n.maker.tend(t.Context(), true); !errors.Is(err, errLost) {
						t.Fatal(err)
					}
				}
				g.before = nil
				n.leads.Store(false)
				if taken >= 0 {
					g.apply(proposed[taken])
				} else {
					other.leads.Store(true)
					if err := other.maker.tend(t.Context(), true); err != nil {
						t.Fatal(err)
					}
				}
				for _, m := range []*member{n, other} {
					if err := m.maker.tend(t.Context(), true); err != nil {
						t.Fatal(err)
					}
					if _, ok := m.maker.Seed(1); !ok {
						t.Error("a node does not have the key that the log has")
					}
				}
			})
		})
	}
}

// TestRestartBeforeReplay: the log has the new key, but the store lags at its start.
func TestRestartBeforeReplay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, t.TempDir(), 1)
		defer g.close()
		n := g.nodes[0]
		if _, signed, err := n.maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
			t.Fatal(signed, err)
		}
		var committed storage.Command
		// the node is killed once the log has it
		g.before = func(c storage.Command) error { committed = c; return errLost }
		if _, err := n.maker.Rotate(t.Context(), false); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		g.before = nil
		if err := n.maker.Close(); err != nil {
			t.Fatal(err)
		}
		n.leads.Store(false)
		n.live(New(n.opts))
		bubble.Until(t, "the maker has the key of its file", func() bool { return n.maker.signer.Load() != nil })
		g.apply(committed) // the log is replayed
		n.leads.Store(true)
		if _, signed, err := n.maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
			t.Errorf("signed %t, %v: the key that the log names is in no file any more", signed, err)
		}
	})
}

// TestRotateWhileFetching: while the member with the key does not answer, no other key is made,
// unless the caller declares it lost. Once it answers, its key endorses the new one.
func TestRotateWhileFetching(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, lost := range []bool{false, true} {
			g := newGroup(t, t.TempDir(), 3)
			a, b := g.nodes[0], g.nodes[1]
			g.append("run", 0, 1)
			silent := [][]byte{}
			b.seeds.Store(&silent) // set before the key exists: the node's loop cannot fetch it
			b.silent.Store(true)   // while the key is made
			if k, err := a.maker.Rotate(t.Context(), false); err != nil || k.Number != 1 {
				t.Fatalf("the first key, which has none before it: %+v, %v", k, err)
			}
			b.silent.Store(false)
			a.leads.Store(false)
			b.leads.Store(true)
			if k, err := b.maker.Rotate(t.Context(), false); !errors.Is(err, ErrKeyMissing) {
				t.Errorf("rotated to %+v, %v", k, err)
			}
			if keys, err := signing.Keys(b.opts.Store); err != nil || len(keys) != 1 {
				t.Errorf("keys %v, %v", keys, err)
			}
			if !lost {
				b.seeds.Store(nil) // it answers again
			}
			if k, err := b.maker.Rotate(t.Context(), lost); err != nil || k.Number != 2 || (k.Endorsement == "") != lost {
				t.Errorf("lost %t: rotated to %+v, %v", lost, k, err)
			}
			if _, signed, err := b.maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
				t.Errorf("lost %t: signed %t, %v", lost, signed, err)
			}
			g.close()
		}
	})
}

// TestRefreshFailsHalfWay: the next refresh does the rest of a failed one; until then the tree is
// that of the checkpoint before.
func TestRefreshFailsHalfWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
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
		heads.Runs++ // the last group has a run without a record, and cannot be read
		heads.Changed = append(heads.Changed, heads.Runs/storage.RunGroup)
		if _, err := n.maker.refresh(t.Context(), heads); err == nil {
			t.Error("a run that is not there was read")
		}
		if err := heads.Close(); err != nil {
			t.Fatal(err)
		}
		if p, c := n.prove("run-0", false); c.Heads != before.Heads || p.Leaf.LastSeq != 1 {
			t.Errorf("the checkpoint before is one of runSeq %d, root %v, want %v", p.Leaf.LastSeq, c.Heads, before.Heads)
		}
		delete(n.maker.pending, heads.Runs/storage.RunGroup) // no such run exists
		want := rootNow(t, n.opts.Store, runs)
		for _, run := range []string{"run-0", runs[len(runs)-1], "run-70"} {
			if _, c := n.prove(run, true); c.Heads != want {
				t.Errorf("root %v, want %v", c.Heads, want)
			}
		}
	})
}

// TestWaitForTheKeyEnds: a caller can cancel its wait for the key while a rotation waits for the
// log.
func TestWaitForTheKeyEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, t.TempDir(), 1)
		defer g.close()
		n := g.nodes[0]
		if _, signed, err := n.maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
			t.Fatal(signed, err)
		}
		proposed, goOn, rotated := make(chan struct{}), make(chan struct{}), make(chan error)
		g.before = func(storage.Command) error { close(proposed); <-goOn; return nil }
		go func() {
			_, err := n.maker.Rotate(context.Background(), false)
			rotated <- err
		}()
		<-proposed
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := n.maker.Rotate(short, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another rotation: %v", err)
		}
		if _, ok := n.maker.Seed(1); !ok {
			t.Error("another member is not given the key while it is being changed")
		}
		close(goOn)
		if err := <-rotated; err != nil {
			t.Error(err)
		}
	})
}
