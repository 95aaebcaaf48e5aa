package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/audit/proof"
	"runlog/storage"
	"runlog/storage/machine/signing"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestRootsTR2: whatever is appended between checkpoints, whichever node makes them, and however
// often one fails, the root are those over the heads of all runs and over all records up to its
// position.
func TestRootsTR2(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, func(t *rapid.T) { roots(t, dir) }) })
}

func roots(t *rapid.T, dir string) {
	g := newGroup(t, dir, 2)
	defer g.close()
	for _, n := range g.nodes {
		n.leads.Store(true) // each in its turn
		_ = os.Remove(n.opts.KeyFile)
	}
	var runs []string
	for range rapid.IntRange(1, 8).Draw(t, "rounds") {
		for range rapid.IntRange(0, 2*storage.RunGroup).Draw(t, "new") {
			runs = append(runs, fmt.Sprint("run-", len(runs)))
			g.append(runs[len(runs)-1], 0, 1)
		}
		if len(runs) == 0 {
			continue
		}
		for range rapid.IntRange(0, 3).Draw(t, "old") {
			g.append(rapid.SampledFrom(runs).Draw(t, "run"), rapid.IntRange(0, 50).Draw(t, "event"), 2)
		}
		n := g.nodes[rapid.IntRange(0, 1).Draw(t, "node")]
		if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
			g.before = func(storage.Command) error { return errLost }
			if _, err := n.maker.Prove(context.Background(), runs[0], true); err != nil && !errors.Is(err, errLost) && !errors.Is(err, ErrKeyMissing) {
				t.Fatal(err)
			}
			g.before = nil
			continue
		}
		run := rapid.SampledFrom(runs).Draw(t, "proved")
		want := rootNow(t, n.opts.Store, runs)
		p, c := n.prove(run, true)
		if p.Leaf.RunID != run || c.Runs > uint64(len(runs)) {
			t.Fatalf("proved %q of %d runs", p.Leaf.RunID, c.Runs)
		}
		if c.Runs == uint64(len(runs)) && c.Size == n.store.Applied().Events && c.Heads != want {
			t.Fatalf("root of heads %v, want %v", c.Heads, want)
		}
	}
	list, err := signing.Checkpoints(g.nodes[0].opts.Store, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		c, _, err := proof.PeekCheckpoint(list[i].Note)
		if err != nil {
			t.Fatal(err)
		}
		root, err := recordsOf(g.nodes[0].opts.Store)(context.Background(), list[i].Position, int64(c.Size))
		if err != nil || c.Root != root || storage.Position(c.Position) != list[i].Position {
			t.Fatalf("checkpoint of %d: %+v, root %v, %v", list[i].Position, c, root, err)
		}
	}
}

// TestInstalled: after another node's store was installed, the tree is that of the new store.
func TestInstalled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g, behind := newGroup(t, t.TempDir(), 1), newGroup(t, t.TempDir(), 1)
		defer g.close()
		defer behind.close()
		var runs []string
		for i := range 3 * storage.RunGroup {
			runs = append(runs, fmt.Sprint("run-", i))
			g.append(runs[i], 0, 1)
			if i < storage.RunGroup {
				behind.append(runs[i], 0, 1)
			}
		}
		g.nodes[0].prove("run-0", true)
		behind.nodes[0].prove("run-0", true)
		for _, run := range runs[:5] {
			g.append(run, 1, 3)
		}
		s := behind.nodes[0].opts.Store
		if err := s.Install(streamOf(t, g.nodes[0].opts.Store)); err != nil {
			t.Fatal(err)
		}
		behind.index = g.index
		// The key of the new store is the other's.
		seed, _ := g.nodes[0].maker.Seed(1)
		behind.nodes[0].seeds.Store(&[][]byte{seed})
		want := rootNow(t, s, runs)
		if _, c := behind.nodes[0].prove("run-190", true); c.Heads != want || c.Runs != uint64(len(runs)) {
			t.Errorf("root %v over %d runs, want %v over %d", c.Heads, c.Runs, want, len(runs))
		}
	})
}

// TestCoalesced: many concurrent requests for a fresh proof are answered by few checkpoints, each
// of which began after the requests.
func TestCoalesced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, t.TempDir(), 1)
		defer g.close()
		for i := range 100 {
			g.append(fmt.Sprint("run-", i), 0, 1)
		}
		var done sync.WaitGroup
		for i := range 100 {
			done.Go(func() {
				run := fmt.Sprint("run-", i)
				g.append(run, 1, 1)
				if p, _ := g.nodes[0].prove(run, true); p.Leaf.LastSeq != 2 {
					t.Errorf("%s is proved up to runSeq %d", run, p.Leaf.LastSeq)
				}
			})
		}
		done.Wait()
		g.append("run-5", 2, 1)
		for fresh, want := range map[bool]uint64{false: 2, true: 3} {
			if p, _ := g.nodes[0].prove("run-5", fresh); p.Leaf.LastSeq < want {
				t.Errorf("proved up to runSeq %d; fresh %t", p.Leaf.LastSeq, fresh)
			}
		}
		if list, err := signing.Checkpoints(g.nodes[0].opts.Store, 0, 1000); err != nil || len(list) > 101 {
			t.Errorf("%d checkpoints, %v", len(list), err)
		}
	})
}

// TestTwoWhoLead: two nodes consider themselves the leader. The log accepts the key and the
// checkpoint of one; the other fetches the key, and makes its checkpoint after it.
func TestTwoWhoLead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, t.TempDir(), 2)
		defer g.close()
		g.append("run", 0, 1)
		a, b := g.nodes[0], g.nodes[1]
		b.leads.Store(true)
		stolen := false
		g.before = func(storage.Command) error {
			if !stolen {
				stolen = true
				// The other one is faster with everything.
				if _, _, err := b.maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil {
					t.Error(err)
				}
			}
			return nil
		}
		_, signed, err := a.maker.Sign(context.Background(), &proof.Statement{Title: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if !signed { // its own was refused; the other's is fetched at the next check
			if _, signed, err = a.maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
				t.Fatalf("signed %t, %v", signed, err)
			}
		}
		keys, err := signing.Keys(a.opts.Store)
		if err != nil || len(keys) != 1 {
			t.Fatalf("keys %v, %v", keys, err)
		}
		if x, y := a.maker.signer.Load().PublicKey(), b.maker.signer.Load().PublicKey(); x != y || x != keys[0].PublicKey {
			t.Errorf("one signs with %s, the other with %s", x, y)
		}
		stolen = false
		g.before = func(storage.Command) error {
			if !stolen {
				stolen = true
				b.prove("run", true)
			}
			return nil
		}
		var refused *signing.CheckpointError
		if _, err := a.maker.Prove(t.Context(), "run", true); !errors.As(err, &refused) {
			t.Errorf("the later checkpoint: %v", err)
		}
		a.prove("run", true)
	})
}

// TestLostAnswers: a key with an unknown outcome is used if it was accepted, and proposed again if
// not.
func TestLostAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, t.TempDir(), 1)
		defer g.close()
		n := g.nodes[0]
		sign := func() bool {
			_, signed, err := n.maker.Sign(context.Background(), &proof.Statement{Title: "x"})
			if err != nil {
				t.Fatal(err)
			}
			return signed
		}
		g.before = func(storage.Command) error { return errLost }
		for range manyTries {
			if sign() {
				t.Fatal("signed with a key that nobody knows")
			}
		}
		g.before = nil
		g.lose.Store(true)
		sign()
		g.lose.Store(false)
		if !sign() {
			t.Error("the key that was taken is not used")
		}
		g.lose.Store(true)
		if _, err := n.maker.Rotate(t.Context(), false); !errors.Is(err, errLost) {
			t.Errorf("rotated: %v", err)
		}
		g.lose.Store(false)
		if !sign() || n.missing.Load() {
			t.Error("the key that was rotated to is not used")
		}
		keys, err := signing.Keys(n.opts.Store)
		if err != nil || len(keys) != 2 || keys[1].Endorsement == "" || n.maker.signer.Load().PublicKey() != keys[1].PublicKey {
			t.Errorf("keys %v, %v", keys, err)
		}
		text, err := os.ReadFile(n.opts.KeyFile)
		if err != nil || strings.Count(string(text), "seed") != 1 {
			t.Errorf("the file has %d keys, %v", strings.Count(string(text), "seed"), err)
		}
	})
}

// TestRestored: in a store restored from another cluster's backup, the leader makes a key of its
// own, without an endorsement, and a checkpoint though nothing has changed; a follower does not.
func TestRestored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		other, err := proof.NewSigner([16]byte{7}, [32]byte{7})
		if err != nil {
			t.Fatal(err)
		}
		g := newGroup(t, t.TempDir(), 2)
		defer g.close()
		g.append("run", 0, 1)
		must := func(c storage.Command, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			if o := g.apply(c); o.Err != nil {
				t.Fatal(o.Err)
			}
		}
		must(storage.EncodeOne(signing.StoreKey(signing.Key{Number: 1, PublicKey: other.PublicKey()})))
		note, err := other.SignCheckpoint(&proof.Checkpoint{Cluster: [16]byte{7}, Size: 1, Position: 1, CompleteThrough: 1, Runs: 1})
		must(storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{Position: 1, Note: note})))
		if err != nil {
			t.Fatal(err)
		}
		if _, signed, err := g.nodes[1].maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || signed || g.nodes[1].missing.Load() {
			t.Errorf("the follower has signed: %t, %v", signed, err)
		}
		if due, err := g.nodes[0].maker.due(); err != nil || !due {
			t.Errorf("a checkpoint of its own is due: %t, %v", due, err)
		}
		_, c := g.nodes[0].prove("run", true)
		keys, err := signing.Keys(g.nodes[1].opts.Store)
		if err != nil || len(keys) != 2 || keys[1].Endorsement != "" {
			t.Errorf("keys %v, %v", keys, err)
		}
		if c.Cluster != storagetest.Cluster {
			t.Errorf("it is of %s", c.Origin())
		}
	})
}

// TestDue: a checkpoint is due when something has changed, and long enough ago, or much enough.
func TestDue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var now atomic.Int64
		g := newGroup(t, t.TempDir(), 1, func(o *Options) {
			o.Interval, o.Events, o.Clock = time.Minute, 5, func() time.Time { return time.Unix(0, now.Load()) }
		})
		defer g.close()
		s := g.nodes[0].maker
		if _, signed, err := s.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || !signed {
			t.Fatal(signed, err)
		}
		g.nodes[0].leads.Store(false) // so that checkpoints are made on demand only
		since := time.Duration(0)     // the last stamp
		want := func(what string, want bool) {
			t.Helper()
			now.Store(g.nodes[0].store.Applied().PersistedAt + int64(since))
			if got, err := s.due(); err != nil || got != want {
				t.Errorf("%s: due %t, %v", what, got, err)
			}
		}
		want("nothing", false)
		g.append("run", 0, 1)
		want("the first event", true)
		g.nodes[0].prove("run", true)
		want("no change", false)
		g.append("run", 1, 1)
		want("one event", false)
		g.append("run", 2, 3)
		want("four events", false)
		g.append("run", 5, 1)
		want("five events", true)
		g.nodes[0].prove("run", true)
		g.append("other", 0, 1)
		want("a run", false)
		for range 60 {
			g.append("run", 1, 1) // again, which changes nothing and takes a second
		}
		want("a minute later", true)
		g.nodes[0].prove("other", true)
		since = time.Hour
		want("nothing for an hour", false)
		g.append("run", 6, 1)
		want("one event in an hour", true)
	})
}

// TestKeyFiles: a mismatched key is not used, whatever its source.
func TestKeyFiles(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		g := newGroup(t, dir, 1)
		g.append("run", 0, 1)
		g.nodes[0].prove("run", true)
		path := g.nodes[0].opts.KeyFile
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		g.close()
		for name, damaged := range map[string]string{
			"empty": "", "no JSON": "{", "another cluster's": strings.Replace(string(text), "72", "73", 1), "a short seed": strings.Replace(string(text), `"seed":"`, `"seed":"AAAA`, 1),
		} {
			r := keyring{disk: vfs.Default, path: path, cluster: g.nodes[0].opts.Cluster}
			if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := r.open(); (err == nil) != (name == "another cluster's") || len(r.held) > 0 {
				t.Errorf("%s: %v, %d keys", name, err, len(r.held))
			}
		}
		again := keyring{disk: vfs.Default, path: path, cluster: g.nodes[0].opts.Cluster}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := again.open(); err != nil || len(again.held) != 1 {
			t.Errorf("%v, %d keys", err, len(again.held))
		}
	})
}

// TestWrongSeeds: wrong keys of other members are rejected.
func TestWrongSeeds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, t.TempDir(), 3)
		defer g.close()
		g.append("run", 0, 1)
		g.nodes[1].silent.Store(true)
		// Set before the key exists, so that the node's loop cannot fetch the right one.
		g.nodes[1].seeds.Store(&[][]byte{nil, make([]byte, 31), make([]byte, 32)})
		g.nodes[0].prove("run", true)
		if _, signed, err := g.nodes[1].maker.Sign(context.Background(), &proof.Statement{Title: "x"}); err != nil || signed {
			t.Errorf("signed %t, %v", signed, err)
		}
		if _, err := os.Stat(g.nodes[1].opts.KeyFile); err == nil {
			t.Error("a wrong key was kept")
		}
	})
}
