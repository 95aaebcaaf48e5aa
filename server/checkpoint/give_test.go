package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/audit/proof"
	"runlog/storage"
	"runlog/storage/machine/signing"
	"runlog/testbed/bubble"
)

// signs reports whether a node signs with the newest key.
func (n *member) signs() bool {
	_, signed, err := n.maker.Sign(context.Background(), &proof.Statement{Title: "x"})
	return err == nil && signed
}

// restart restarts a node's Maker; with a lost disk, without its key file.
func (n *member) restart(disk bool) {
	was := n.maker
	n.live(nil)
	if err := was.Close(); err != nil {
		n.g.t.Fatal(err)
	}
	if !disk {
		if err := n.opts.FS.Remove(n.opts.KeyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			n.g.t.Fatal(err)
		}
	}
	n.live(New(n.opts))
}

// lead makes one node the leader; -1: none.
func (g *group) lead(leader int) {
	for i, n := range g.nodes {
		n.leads.Store(i == leader)
	}
}

// TestMakerLosesItsDisk: a node makes a key and loses its disk at once; the other nodes sign with
// the key.
func TestMakerLosesItsDisk(t *testing.T) {
	for _, rotation := range []bool{false, true} {
		t.Run(fmt.Sprint("rotation-", rotation), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGroup(t, "", 3)
				defer g.close()
				maker := g.nodes[0]
				if rotation && !maker.signs() {
					t.Fatal("no first key")
				}
				// It loses its disk when the log has the public part, and no other node has
				// noticed.
				g.before = func(c storage.Command) error {
					g.apply(c)
					if err := maker.opts.FS.Remove(maker.opts.KeyFile); err != nil {
						t.Error(err)
					}
					return errLost
				}
				if _, err := maker.maker.Rotate(t.Context(), false); !errors.Is(err, errLost) {
					t.Fatal(err)
				}
				g.before = nil
				maker.restart(false)
				g.lead(1)
				for i, n := range g.nodes {
					if !n.signs() {
						t.Errorf("node %d does not sign", i)
					}
				}
				if k, err := g.nodes[1].maker.Rotate(t.Context(), false); err != nil || k.Endorsement == "" {
					t.Errorf("%+v, %v: nobody vouches for the next key", k, err)
				}
			})
		})
	}
}

// TestKeepNeedsAMajority: a key that no majority keeps is not proposed, and is the same when one
// does.
func TestKeepNeedsAMajority(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, "", 5)
		defer g.close()
		maker := g.nodes[0]
		for _, n := range g.nodes[2:] {
			n.silent.Store(true)
		}
		proposed := 0
		g.before = func(storage.Command) error { proposed++; return nil }
		for range manyTries {
			if _, err := maker.maker.Rotate(t.Context(), false); !errors.Is(err, ErrNotGiven) {
				t.Fatalf("%v, of five nodes two have the key", err)
			}
		}
		if _, err := maker.maker.Prove(t.Context(), "run", true); errors.Is(err, ErrKeyMissing) {
			t.Errorf("a run that is not there: %v", err)
		}
		g.append("run", 0, 1)
		if _, err := maker.maker.Prove(t.Context(), "run", true); !errors.Is(err, ErrKeyMissing) || !errors.Is(err, ErrNotGiven) {
			t.Errorf("a proof without a key: %v", err)
		}
		made, ok := maker.maker.keys.proposed(1, g.members())
		if !ok || proposed > 0 {
			t.Fatalf("%d were proposed", proposed)
		}
		g.nodes[2].silent.Store(false)
		k, err := maker.maker.Rotate(t.Context(), false)
		if err != nil || k.PublicKey != made.signer.PublicKey() {
			t.Errorf("%+v, %v", k, err)
		}
	})
}

// TestLeftBeforeTheKeyWasTaken: a node that received a key and was removed before the next proposal
// does not have the proposed key, whichever node made the first key, and however the others
// received it.
func TestLeftBeforeTheKeyWasTaken(t *testing.T) {
	for maker := range 4 {
		t.Run(fmt.Sprint("maker-", maker), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGroup(t, "", 4)
				defer g.close()
				g.before = func(storage.Command) error { return errLost }
				g.lead(maker)
				if _, err := g.nodes[maker].maker.Rotate(t.Context(), false); !errors.Is(err, errLost) {
					t.Fatal(err)
				}
				g.before = nil
				seeds := g.seedsOf(3)
				if len(seeds) == 0 {
					t.Fatal("it was not given the key")
				}
				g.remove(3)
				g.lead(0)
				if _, err := g.nodes[0].maker.Rotate(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				if seed, ok := g.nodes[0].maker.Seed(1); !ok || slices.Contains(seeds, string(seed)) || slices.Contains(g.seedsOf(3), string(seed)) {
					t.Error("a node that has left has the private part")
				}
			})
		})
	}
}

// seedsOf are the keys that a node has.
func (g *group) seedsOf(node int) (seeds []string) {
	keys := &g.nodes[node].maker.keys
	keys.mu.Lock()
	defer keys.mu.Unlock()
	for _, k := range keys.held {
		seeds = append(seeds, string(k.seed[:]))
	}
	return seeds
}

// TestLeftWhileTheKeyWasGiven: a node removed while it received a key has that key, so the key is
// not proposed.
func TestLeftWhileTheKeyWasGiven(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, "", 4)
		defer g.close()
		g.given = func() { g.remove(3) }
		if _, err := g.nodes[0].maker.Rotate(t.Context(), false); !errors.Is(err, ErrNotGiven) {
			t.Fatal(err)
		}
		if _, err := g.nodes[0].maker.Rotate(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if seed, ok := g.nodes[0].maker.Seed(1); !ok || slices.Contains(g.seedsOf(3), string(seed)) {
			t.Error("a node that has left has the private part")
		}
	})
}

// TestKeepWhatTheLogHasNot: a key that the log has decided against is not kept, nor one far from
// the log, nor more than a bound; kept keys stay in the file.
func TestKeepWhatTheLogHasNot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, "", 1)
		defer g.close()
		n := g.nodes[0]
		if !n.signs() {
			t.Fatal("no key")
		}
		seed := func(i byte) []byte { return slices.Repeat([]byte{i}, 32) }
		for number := range uint64(2) {
			if err := n.maker.Keep(number, seed(1)); !errors.Is(err, ErrKeyTaken) {
				t.Errorf("another key %d: %v", number, err)
			}
		}
		if own, ok := n.maker.Seed(1); !ok || n.maker.Keep(1, own) != nil {
			t.Error("the one that the log has is refused")
		}
		if n.maker.Keep(2, seed(1)[:31]) == nil || n.maker.Keep(2+maxUnseen, seed(1)) == nil {
			t.Error("a short seed was kept, or a key that comes later")
		}
		if err := n.maker.Keep(1+maxUnseen, seed(1)); err != nil {
			t.Errorf("a key of one who is ahead: %v", err)
		}
		for i := range byte(maxHeld - 2) {
			if err := n.maker.Keep(2, seed(i)); err != nil {
				t.Fatal(i, err)
			}
		}
		if err := n.maker.Keep(1+maxUnseen, seed(0)); err == nil {
			t.Errorf("more than %d keys are held", maxHeld)
		}
		if err := n.maker.Keep(2, seed(0)); err != nil {
			t.Errorf("the same again: %v", err)
		}
		if err := n.maker.Keep(2, seed(maxHeld)); err == nil {
			t.Errorf("more than %d keys are held", maxHeld)
		}
		n.restart(true)
		if seeds := g.seedsOf(0); len(seeds) != maxHeld || !slices.Contains(seeds, string(seed(0))) {
			t.Errorf("%d keys were read again", len(seeds))
		}
		if _, ok := n.maker.Seed(2); ok {
			t.Error("a key is given that the log does not have")
		}
	})
}

// TestOneDiskAtATime: leaders change, answers are lost, nodes are silent for a while, and each in
// turn loses its disk, once all running nodes have seen the log. The key is never lost.
func TestOneDiskAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, oneDiskAtATime) })
}

func oneDiskAtATime(t *rapid.T) {
	g := newGroup(t, "", rapid.SampledFrom([]int{3, 5}).Draw(t, "nodes"))
	defer g.close()
	node := rapid.IntRange(0, len(g.nodes)-1)
	var late []storage.Command // proposed keys that may still be accepted
	decide := func(taken bool) {
		for _, c := range late {
			if taken {
				g.apply(c)
			}
		}
		late = nil
	}
	t.Repeat(map[string]func(*rapid.T){
		"lead": func(t *rapid.T) { g.lead(node.Draw(t, "leader")) },
		"make": func(t *rapid.T) {
			became := rapid.SampledFrom([]string{"taken", "taken, and the answer is lost", "late"}).Draw(t, "became")
			g.before = func(c storage.Command) error {
				switch became {
				case "late":
					late = append(late, c)
					return errLost
				case "taken":
					return nil
				default:
					g.apply(c)
					return errLost
				}
			}
			_, _ = g.nodes[node.Draw(t, "maker")].maker.Rotate(t.Context(), false)
			g.before = nil
		},
		"late":    func(*rapid.T) { decide(true) },
		"silent":  func(t *rapid.T) { g.nodes[node.Draw(t, "node")].silent.Store(rapid.Bool().Draw(t, "is")) },
		"restart": func(t *rapid.T) { g.nodes[node.Draw(t, "node")].restart(true) },
		"lose": func(t *rapid.T) {
			lost := node.Draw(t, "node")
			// a node is replaced only after the log has got so far
			decide(rapid.Bool().Draw(t, "taken"))
			g.nodes[lost].restart(false)
			g.rename(lost)
			for i, n := range g.nodes {
				if i != lost {
					_ = n.maker.tend(t.Context(), false)
				}
			}
			g.nodes[lost].silent.Store(false)
			_ = g.nodes[lost].maker.tend(t.Context(), false)
		},
		"": func(t *rapid.T) {
			last, err := signing.LastKey(g.nodes[0].opts.Store)
			if err != nil {
				t.Fatal(err)
			}
			if last.Number > 0 && !slices.ContainsFunc(g.nodes, func(n *member) bool { _, ok := n.maker.keys.find(last.Number, last.PublicKey); return ok }) {
				t.Fatalf("nobody has signing key %d", last.Number)
			}
		},
	})
}
