package interop

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"filippo.io/torchwood"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	tessera "github.com/transparency-dev/tessera/client"
	"golang.org/x/mod/sumdb/tlog"

	ours "runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
)

// node is a running node, whose log public programs read over HTTP.
type node struct {
	*servertest.Node
	digests []string // the chain digests of all records
}

func newNode(t *testing.T) *node {
	return &node{Node: servertest.Start(t, servertest.OnMachine(t), func(o *server.Options) { servertest.Seldom(0, o) })}
}

// grow appends records of runs, and has the cluster sign a checkpoint of them.
func (n *node) grow(runs, records int) (checkpoint string) {
	n.T.Helper()
	var id string
	for range runs {
		id = fmt.Sprint("run-", len(n.digests))
		n.Append(id, servertest.Steps("s", records)...)
		for _, e := range n.List(id) {
			n.digests = append(n.digests, e.ChainDigest)
		}
	}
	n.Prove(id, true)
	return string(n.HTTP(http.MethodGet, "/log/checkpoint", "").Body)
}

// log is the address of the node's log.
func (n *node) log() string { return "http://" + n.Server.Addresses().HTTP + "/log/" }

// prove is what witness.Client asks for.
func (n *node) prove(ctx context.Context, earlier, later uint64) ([]tlog.Hash, error) {
	resp, err := n.Audits().ProveConsistency(ctx, &runlogv1.ProveConsistencyRequest{OldSize: earlier, NewSize: later})
	if err != nil {
		return nil, err
	}
	return ours.HashesOf(resp.GetHashes())
}

// isOf reports whether an entry of the log is the leaf of a record.
func (n *node) isOf(entry []byte, record int) bool {
	digest, err := hex.DecodeString(n.digests[record])
	return err == nil && bytes.Contains(entry, digest)
}

// TestTesseraReadsTR1: the client of tessera reads the log of a node. The entries are included in
// the tree that the checkpoint signs, and the log as it has grown continues the one before.
func TestTesseraReadsTR1(t *testing.T) {
	n := newNode(t)
	n.grow(1, 100)
	root, err := url.Parse(n.log())
	if err != nil {
		t.Fatal(err)
	}
	fetch, err := tessera.NewHTTPFetcher(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := verifierOf(t, n.SigningKeys()[0].CheckpointKey)
	tracker, err := tessera.NewLogStateTracker(t.Context(), fetch.ReadTile, nil, key, key.Name(), tessera.UnilateralConsensus(fetch.ReadCheckpoint))
	if err != nil {
		t.Fatal(err)
	}
	for _, runs := range []int{0, 1, 5} {
		before := tracker.Latest()
		if runs > 0 {
			n.grow(runs, 90)
		}
		if _, _, _, err := tracker.Update(t.Context()); err != nil {
			t.Fatalf("from %d records on: %v", before.Size, err)
		}
		c := tracker.Latest()
		if c.Size != uint64(len(n.digests)) {
			t.Fatalf("%d records of %d", c.Size, len(n.digests))
		}
		b, err := tessera.NewProofBuilder(t.Context(), c.Size, fetch.ReadTile)
		if err != nil {
			t.Fatal(err)
		}
		var bundle api.EntryBundle
		for i := range c.Size {
			if at := i % torchwood.TileWidth; at == 0 {
				if bundle, err = tessera.GetEntryBundle(t.Context(), fetch.ReadEntryBundle, i/torchwood.TileWidth, c.Size); err != nil {
					t.Fatal(err)
				}
			}
			entry := bundle.Entries[i%torchwood.TileWidth]
			path, err := b.InclusionProof(t.Context(), i)
			if err != nil {
				t.Fatal(err)
			}
			if err := proof.VerifyInclusion(rfc6962.DefaultHasher, i, c.Size, rfc6962.DefaultHasher.HashLeaf(entry), path, c.Hash); err != nil || !n.isOf(entry, int(i)) {
				t.Fatalf("entry %d of %d: %v, %x", i, c.Size, err, entry)
			}
		}
	}
}

// TestWitnessedNodeTR4: the public witness signs the checkpoints of a node as its log grows. With
// its signature, torchwood reads the log, and takes the proof of an entry by a policy, offline.
func TestWitnessedNodeTR4(t *testing.T) {
	n := newNode(t)
	checkpoint := n.grow(1, 100)
	logKey := n.SigningKeys()[0].CheckpointKey
	witness := newPublic(t, logKey)
	rules, err := torchwood.ParsePolicy(fmt.Appendf(nil, "log %s\nwitness w %s %s\nquorum w\n", logKey, cosignerOf(t, ours.KeyEd25519).Key(), witness.url))
	if err != nil {
		t.Fatal(err)
	}
	fetch, err := torchwood.NewTileFetcher(n.log())
	if err != nil {
		t.Fatal(err)
	}
	reader, err := torchwood.NewClient(fetch)
	if err != nil {
		t.Fatal(err)
	}
	for _, runs := range []int{0, 1, 5} {
		if runs > 0 {
			checkpoint = n.grow(runs, 90)
		}
		line, err := witness.client(t, ours.KeyEd25519).Cosign(t.Context(), checkpoint, 0, n.prove)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := torchwood.VerifyCheckpoint([]byte(checkpoint), rules); err == nil {
			t.Error("torchwood takes a checkpoint without the signature of the witness")
		}
		signed := []byte(checkpoint + line)
		c, _, err := torchwood.VerifyCheckpoint(signed, rules)
		if err != nil || c.N != int64(len(n.digests)) {
			t.Fatalf("%+v of %d records, %v", c, len(n.digests), err)
		}
		entries := readAll(t, reader, c.Tree)
		for i, entry := range entries {
			if !n.isOf(entry, i) {
				t.Fatalf("entry %d is not the leaf of its record", i)
			}
		}
		last := c.N - 1
		entry, path, err := reader.Entry(t.Context(), c.Tree, last)
		if err != nil || !bytes.Equal(entry, entries[last]) {
			t.Fatalf("entry %d: %x, %v", last, entry, err)
		}
		file := torchwood.FormatProof(last, path, signed)
		if err := torchwood.VerifyProof(rules, tlog.RecordHash(entry), file); err != nil {
			t.Error(err)
		}
		if err := torchwood.VerifyProof(rules, tlog.RecordHash(entries[0]), file); err == nil {
			t.Error("torchwood takes the proof of another entry")
		}
	}
}

// readAll reads a log to its end, and verifies each entry.
func readAll(t *testing.T, reader *torchwood.Client, tree tlog.Tree) (entries [][]byte) {
	t.Helper()
	for int64(len(entries)) < tree.N {
		had := len(entries)
		for _, entry := range reader.Entries(t.Context(), tree, int64(had)) {
			entries = append(entries, bytes.Clone(entry))
		}
		if err := reader.Err(); err != nil || len(entries) == had {
			t.Fatalf("%d of %d entries: %v", len(entries), tree.N, err)
		}
	}
	return entries
}
