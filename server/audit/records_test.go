package audit_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestProveRecordsTR3: all records of a run of several blocks are proved to be in the tree, at each
// size of the tree and on each node, and no record behind the size. Sizes that the tree does not
// have are refused.
func TestProveRecordsTR3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t), servertest.Seldom)
		n := all[0]
		for i := range 12 {
			n.MustAppend("run", servertest.Steps(fmt.Sprintf("s%d-", i), 100)...)
			n.MustAppend(fmt.Sprint("other-", i), servertest.Numbered(1), servertest.Numbered(2))
		}
		for _, n := range all { // Prove verifies each record.
			if l, c := n.Prove("run", true); l.Head.LastSeq != 1200 || c.Size != 1224 {
				t.Errorf("proved up to runSeq %d in a tree of %d records", l.Head.LastSeq, c.Size)
			}
		}
		prove := func(after, size uint64) *runlogv1.ProveRecordsResponse {
			t.Helper()
			resp, err := all[2].Audits().ProveRecords(n.Context(), &runlogv1.ProveRecordsRequest{RunId: "run", AfterSeq: after, TreeSize: size})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		for after, want := range map[uint64]int{0: proof.InclusionBlock, 150: proof.InclusionBlock, 1000: 200, 1199: 1, 1200: 0} {
			if got := len(prove(after, 1224).Places.Indexes); got != want {
				t.Errorf("behind runSeq %d: %d records, want %d", after, got, want)
			}
		}
		// At an earlier size, the first records alone.
		if got := prove(0, 150).Places.Indexes; len(got) != 148 || got[147] != 149 {
			t.Errorf("in a tree of 150 records, %d are proved", len(got))
		}
		if got := prove(0, 0).Places; len(got.Indexes) != 0 || len(got.Hashes) != 0 {
			t.Errorf("in an empty tree: %v", got)
		}
		over := n.Get("/v1/audit/runs/run:proveRecords?afterSeq=1198&treeSize=1224")
		if places := over["places"].(map[string]any); len(places["indexes"].([]any)) != 2 || places["positions"].([]any)[1] == "0" {
			t.Errorf("over HTTP: %v", over)
		}
		for size, field := range map[uint64]string{1225: "treeSize", 1 << 63: "treeSize"} {
			_, err := n.Audits().ProveRecords(n.Context(), &runlogv1.ProveRecordsRequest{RunId: "run", TreeSize: size})
			servertest.Says(t, err, contract.ReasonInvalidArgumentField, field)
		}
		_, err := n.Audits().ProveRecords(n.Context(), &runlogv1.ProveRecordsRequest{RunId: "nobody", TreeSize: 1})
		servertest.Says(t, err, contract.ReasonRunNotFound, "nobody")
	})
}

// TestProveConsistencyTR3: a server proves that each size of its tree continues each earlier one,
// over HTTP too, and refuses sizes that its tree does not have.
func TestProveConsistencyTR3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) { servertest.Seldom(0, o) })
		var kept []*proof.Checkpoint
		for i := range 6 {
			n.Append(fmt.Sprint("run-", i), servertest.Steps("s", 1+13*i)...)
			_, c := n.Prove(fmt.Sprint("run-", i), true)
			kept = append(kept, c)
		}
		for i, later := range kept {
			for _, earlier := range kept[:i+1] {
				resp, err := n.Audits().ProveConsistency(n.Context(), &runlogv1.ProveConsistencyRequest{OldSize: earlier.Size, NewSize: later.Size})
				if err != nil {
					t.Fatal(err)
				}
				hashes, err := proof.HashesOf(resp.Hashes)
				if err == nil {
					err = proof.CheckConsistency(earlier, later, hashes)
				}
				if err != nil {
					t.Errorf("from %d to %d records: %v", earlier.Size, later.Size, err)
				}
			}
		}
		last := kept[len(kept)-1].Size
		if over := n.Get(fmt.Sprintf("/v1/audit/consistency?oldSize=1&newSize=%d", last)); len(over["hashes"].([]any)) == 0 {
			t.Errorf("over HTTP: %v", over)
		}
		for _, c := range []struct {
			earlier, later uint64
			field          string
		}{{2, 1, "oldSize"}, {1, last + 1, "newSize"}, {1, 1 << 63, "newSize"}} {
			_, err := n.Audits().ProveConsistency(n.Context(), &runlogv1.ProveConsistencyRequest{OldSize: c.earlier, NewSize: c.later})
			servertest.Says(t, err, contract.ReasonInvalidArgumentField, c.field)
		}
		// A checkpoint with more records than the answer has is the client's to judge.
		resp, err := n.Audits().ProveRun(n.Context(), &runlogv1.ProveRunRequest{RunId: "run-0", SinceSize: last + 1})
		if err != nil || len(resp.Consistency) > 0 {
			t.Errorf("since a larger tree: %v, %v", resp, err)
		}
	})
}

// tiles reads the tiles of a log over HTTP, as a client of transparency logs does.
type tiles struct{ n *servertest.Node }

func (r tiles) Height() int                     { return 8 }
func (r tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (r tiles) file(path string) (int, string, []byte) {
	r.n.T.Helper()
	a := r.n.HTTP(http.MethodGet, "/log/"+path, "")
	return a.Code, a.Header.Get("Content-Type"), a.Body
}

func (r tiles) ReadTiles(list []tlog.Tile) (all [][]byte, err error) {
	for _, tile := range list {
		path := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
		status, kind, data := r.file(path)
		if status != http.StatusOK || kind != "application/octet-stream" {
			return nil, fmt.Errorf("%s: %d %s", path, status, kind)
		}
		all = append(all, data)
	}
	return all, nil
}

// TestLogFilesTR1: what /log/ serves is a C2SP tlog-tiles log. The tiles lead to the root that the
// checkpoint signs, and the entries are their leaves, with the chain digests of the records.
func TestLogFilesTR1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) { servertest.Seldom(0, o) })
		read := tiles{n}
		if status, _, _ := read.file("checkpoint"); status != http.StatusNotFound {
			t.Errorf("a log without a checkpoint: %d", status)
		}
		var want []string // the chain digests of all records
		for i := range 9 {
			id := fmt.Sprint("run-", i)
			n.Append(id, servertest.Steps("s", 70)...)
			for _, e := range n.List(id) {
				want = append(want, e.ChainDigest)
			}
		}
		n.Prove("run-0", true)
		status, kind, text := read.file("checkpoint")
		key, err := note.NewVerifier(n.SigningKeys()[0].CheckpointKey)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := note.Open(text, note.VerifierList(key))
		if status != http.StatusOK || kind != "text/plain; charset=utf-8" || err != nil {
			t.Fatalf("the checkpoint: %d %s %v\n%s", status, kind, err, text)
		}
		c, err := proof.ParseCheckpoint(opened.Text)
		if err != nil || c.Size != uint64(len(want)) || key.Name() != c.Origin() {
			t.Fatalf("%+v of %d records, %v", c, len(want), err)
		}
		tree := tlog.Tree{N: int64(c.Size), Hash: c.Root}
		reader := tlog.TileHashReader(tree, read) // It verifies each tile.
		var leaves []tlog.Hash
		for i := range c.Size {
			hashes, err := reader.ReadHashes([]int64{tlog.StoredHashIndex(0, int64(i))})
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, hashes[0])
		}
		entry := 0
		for _, path := range []string{"000", "001", "002.p/118"} {
			status, _, bundle := read.file("tile/entries/" + path)
			if status != http.StatusOK {
				t.Fatalf("the entries of %s: %d", path, status)
			}
			for ; len(bundle) > 0; entry++ {
				size := int(binary.BigEndian.Uint16(bundle))
				data := bundle[2 : 2+size]
				bundle = bundle[2+size:]
				if tlog.RecordHash(data) != leaves[entry] {
					t.Fatalf("entry %d is not its leaf", entry)
				}
				if digest, _ := hex.DecodeString(want[entry]); !bytes.Contains(data, digest) {
					t.Fatalf("entry %d does not have the chain digest of its record", entry)
				}
			}
		}
		if entry != len(want) {
			t.Errorf("%d entries of %d", entry, len(want))
		}
		if _, _, part := read.file("tile/entries/001.p/7"); len(part) != 7*(2+contract.LeafSize) {
			t.Errorf("a part of a bundle has %d bytes", len(part))
		}
		for _, path := range []string{
			"", "checkpoint/", "tile", "tile/0/003", "tile/0/002", "tile/0/002.p/119", "tile/0/000.p/0", "tile/0/000.p/256", "tile/7/000.p/1", "tile/9/000",
			"tile/64/000", "tile/entries/003", "tile/entries/002", "tile/data/000", "tile/0/x999/x999/x999/x999/x999/x999/999", "tile/-1/000", "tile/8/0/000",
			"tile/0/0", "tile/0/001/", "../v1/audit/keys", "tile%2F0%2F000",
		} {
			if status, _, data := read.file(path); status != http.StatusNotFound || !strings.Contains(string(data), "ROUTE_NOT_FOUND") {
				t.Errorf("/log/%s: %d %s", path, status, data)
			}
		}
		body, err := n.Audits().ReadLog(context.Background(), &runlogv1.ReadLogRequest{Path: "checkpoint"})
		if err != nil || !slices.Equal(body.Data, text) {
			t.Errorf("over gRPC: %v, %v", body, err)
		}
	})
}
