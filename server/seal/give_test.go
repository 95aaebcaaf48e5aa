package seal

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/proof"
	"runlog/storage"
)

// signs tells whether a node signs with the newest key.
func (n *member) signs() bool {
	_, signed, err := n.sealer.Sign(&proof.Statement{Title: "x"})
	return err == nil && signed
}

// restart starts the Sealer of a node again, where its disk is lost without the file of its keys.
func (n *member) restart(disk bool) {
	if err := n.sealer.Close(); err != nil {
		n.g.t.Fatal(err)
	}
	if !disk {
		if err := n.opts.FS.Remove(n.opts.KeyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			n.g.t.Fatal(err)
		}
	}
	n.sealer = New(n.opts)
}

// lead makes one node the leader, -1: none.
func (g *group) lead(leader int) {
	for i, n := range g.nodes {
		n.leads.Store(i == leader)
	}
}

// TestMakerLosesItsDisk: whoever makes a key and loses its disk at once, the others sign with the key.
func TestMakerLosesItsDisk(t *testing.T) {
	for _, rotation := range []bool{false, true} {
		t.Run(fmt.Sprint("rotation-", rotation), func(t *testing.T) {
			g := newGroup(t, "", 3)
			defer g.close()
			maker := g.nodes[0]
			if rotation && !maker.signs() {
				t.Fatal("no first key")
			}
			// It loses its disk when the log has the public part, and nobody has looked yet.
			g.before = func(c storage.Command) error {
				g.apply(c)
				if err := maker.opts.FS.Remove(maker.opts.KeyFile); err != nil {
					t.Error(err)
				}
				return errLost
			}
			if _, err := maker.sealer.Rotate(t.Context(), false); !errors.Is(err, errLost) {
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
			if k, err := g.nodes[1].sealer.Rotate(t.Context(), false); err != nil || k.Endorsement == "" {
				t.Errorf("%+v, %v: nobody vouches for the next key", k, err)
			}
		})
	}
}

// TestKeepNeedsAMajority: a key that no majority keeps is not proposed, and is the same when one does.
func TestKeepNeedsAMajority(t *testing.T) {
	g := newGroup(t, "", 5)
	defer g.close()
	for _, n := range g.nodes[2:] {
		n.silent.Store(true)
	}
	proposed := 0
	g.before = func(storage.Command) error { proposed++; return nil }
	for range manyTries {
		if _, err := g.nodes[0].sealer.Rotate(t.Context(), false); !errors.Is(err, ErrNotGiven) {
			t.Fatalf("%v, of five nodes two have the key", err)
		}
	}
	made, ok := g.nodes[0].sealer.keys.proposed(1, g.members())
	if !ok || proposed > 0 {
		t.Fatalf("%d were proposed", proposed)
	}
	g.nodes[2].silent.Store(false)
	g.lead(1) // another that was given it leads now
	k, err := g.nodes[1].sealer.Rotate(t.Context(), false)
	if err != nil || k.PublicKey != made.signer.PublicKey() {
		t.Errorf("%+v, %v", k, err)
	}
}

// TestLeftBeforeTheKeyWasTaken: who was given a key, and is no member any more when it is made, does not have the cluster's key.
func TestLeftBeforeTheKeyWasTaken(t *testing.T) {
	g := newGroup(t, "", 4)
	defer g.close()
	g.before = func(storage.Command) error { return errLost }
	if _, err := g.nodes[0].sealer.Rotate(t.Context(), false); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	g.before = nil
	left, ok := g.nodes[3].sealer.keys.proposed(1, g.members())
	if !ok {
		t.Fatal("it was not given the key")
	}
	g.removed = map[int]bool{3: true}
	g.lead(1)
	k, err := g.nodes[1].sealer.Rotate(t.Context(), false)
	if err != nil || k.PublicKey == left.signer.PublicKey() {
		t.Errorf("%v: a node that has left has the private part", err)
	}
	if _, ok := g.nodes[3].sealer.keys.find(1, k.PublicKey); ok {
		t.Error("it was given the new one, too")
	}
}

// TestKeepWhatTheLogHasNot: what the log has decided otherwise is not kept, nor more than a bound, and what is kept stays in the file.
func TestKeepWhatTheLogHasNot(t *testing.T) {
	g := newGroup(t, "", 1)
	defer g.close()
	n := g.nodes[0]
	if !n.signs() {
		t.Fatal("no key")
	}
	seed := func(i byte) []byte { return slices.Repeat([]byte{i}, 32) }
	if err := n.sealer.Keep(1, seed(1), nil); !errors.Is(err, ErrKeyTaken) {
		t.Errorf("another first key: %v", err)
	}
	if own, ok := n.sealer.Seed(1); !ok || n.sealer.Keep(1, own, nil) != nil {
		t.Error("the one that the log has is refused")
	}
	if err := n.sealer.Keep(2, seed(1)[:31], nil); err == nil {
		t.Error("a short seed was kept")
	}
	for i := range byte(maxHeld - 1) {
		if err := n.sealer.Keep(2, seed(i), []string{"b", "a"}); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := n.sealer.Keep(2, seed(0), []string{"b", "a"}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := n.sealer.Keep(2, seed(maxHeld), nil); err == nil {
		t.Errorf("more than %d keys are held", maxHeld)
	}
	n.restart(true)
	if k, ok := n.sealer.keys.proposed(2, []string{"a", "b"}); !ok || k.seed[0] != 0 || len(n.sealer.keys.held) != maxHeld {
		t.Errorf("%d keys were read again", len(n.sealer.keys.held))
	}
	if _, ok := n.sealer.Seed(2); ok {
		t.Error("a key is given that the log does not have")
	}
}

// TestOneDiskAtATime: leaders come and go, answers are lost, nodes do not answer for a while, and one after the other loses its disk,
// once all others that are up have had a look at the log. The key is never gone.
func TestOneDiskAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGroup(t, "", rapid.SampledFrom([]int{3, 5}).Draw(t, "nodes"))
		defer g.close()
		node := rapid.IntRange(0, len(g.nodes)-1)
		var late []storage.Command // those that were proposed, and may be taken yet
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
				_, _ = g.nodes[node.Draw(t, "maker")].sealer.Rotate(t.Context(), false)
				g.before = nil
			},
			"late":    func(*rapid.T) { decide(true) },
			"silent":  func(t *rapid.T) { g.nodes[node.Draw(t, "node")].silent.Store(rapid.Bool().Draw(t, "is")) },
			"restart": func(t *rapid.T) { g.nodes[node.Draw(t, "node")].restart(true) },
			"lose": func(t *rapid.T) {
				lost := node.Draw(t, "node")
				decide(rapid.Bool().Draw(t, "taken")) // no node takes the place of another before the log has got so far
				g.nodes[lost].restart(false)
				for i, n := range g.nodes {
					if i != lost {
						_ = n.sealer.tend(t.Context(), false)
					}
				}
				g.nodes[lost].silent.Store(false)
				_ = g.nodes[lost].sealer.tend(t.Context(), false)
			},
			"": func(t *rapid.T) {
				last, err := g.nodes[0].opts.Store.LastSigningKey()
				if err != nil {
					t.Fatal(err)
				}
				if last.Number > 0 && !slices.ContainsFunc(g.nodes, func(n *member) bool { _, ok := n.sealer.keys.find(last.Number, last.PublicKey); return ok }) {
					t.Fatalf("nobody has signing key %d", last.Number)
				}
			},
		})
	})
}
