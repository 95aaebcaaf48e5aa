package audit_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestExportProvedTR3: each event of an export has its place in the tree of a checkpoint, with
// which its leaf is computed from all that it says. The events behind the checkpoint have none. A
// filter changes nothing of it, and a size that the tree does not have is refused.
func TestExportProvedTR3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t), servertest.Seldom)
		n := all[0]
		for i := range 5 {
			n.MustAppend(fmt.Sprint("run-", i%2), servertest.Steps(fmt.Sprintf("s%d-", i), 120)...)
		}
		_, c := n.Prove("run-0", true)
		n.MustAppend("run-1", servertest.Steps("late-", 10)...)
		for _, filter := range []*runlogv1.ExportEventsRequest{{}, {RunId: "run-1"}, {TenantId: "tenant"}} {
			filter.TreeSize = c.Size
			stream, err := all[2].Audits().ExportEvents(n.Context(), filter)
			if err != nil {
				t.Fatal(err)
			}
			events, places, late := 0, 0, 0
			last := int64(-1)
			for {
				m, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				p := m.GetPlaces()
				events, places = events+len(m.Events), places+len(p.GetIndexes())
				var indexes []int64
				var leaves []tlog.Hash
				for i, e := range m.Events {
					if i >= len(p.GetIndexes()) {
						late++
						continue
					}
					r, err := proof.RecordOf(e)
					if err != nil {
						t.Fatal(err)
					}
					chain := r.Chain(contract.Digest(p.Previous[32*i:]))
					if chain.String() != e.ChainDigest || int64(p.Indexes[i]) <= last {
						t.Fatalf("runSeq %d of %s at leaf %d: chain digest %s, want %s", r.RunSeq, r.RunID, p.Indexes[i], chain, e.ChainDigest)
					}
					last = int64(p.Indexes[i])
					leaf := contract.Leaf{Chain: chain, Position: p.Positions[i], Offset: p.Offsets[i], PersistedAt: r.PersistedAt}
					indexes, leaves = append(indexes, last), append(leaves, leaf.Hash())
				}
				if len(indexes) == 0 {
					continue
				}
				hashes, err := proof.SplitHashes(p.Hashes)
				if err == nil {
					err = proof.CheckInclusion(int64(c.Size), c.Root, indexes, leaves, hashes)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if late != 10 || events != places+late || filter.RunId == "" && uint64(places) != c.Size {
				t.Errorf("%v: %d events, %d in the tree of %d records, %d behind it", filter, events, places, c.Size, late)
			}
		}
		stream, err := n.Audits().ExportEvents(n.Context(), &runlogv1.ExportEventsRequest{TreeSize: c.Size + 11})
		if err == nil {
			_, err = stream.Recv()
		}
		servertest.Says(t, err, contract.ReasonInvalidArgumentField, "treeSize")
	})
}
