package monitor

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// checker verifies the messages of an export.
type checker struct {
	tree  *proof.Checkpoint
	whole bool
	links *links

	last            int64 // index of the last leaf so far
	records, linked uint64

	indexes []int64 // scratch, as is leaves
	leaves  []tlog.Hash
}

// message verifies that the events of a message are in the tree, with everything that they say. The
// error is ErrRecords.
func (c *checker) message(resp *runlogv1.ExportEventsResponse) error {
	events, places := resp.GetEvents(), resp.GetPlaces()
	if n := len(places.GetIndexes()); n != len(events) || len(places.GetPrevious()) != n*len(contract.Digest{}) {
		return fmt.Errorf("%w: %d events with %d places in the tree", ErrRecords, len(events), n)
	}
	if len(events) == 0 {
		return nil
	}
	c.indexes, c.leaves = c.indexes[:0], c.leaves[:0]
	for i, m := range events {
		if err := c.event(m, places, i); err != nil {
			return fmt.Errorf("%w: runSeq %d of run %q: %w", ErrRecords, m.GetRunSeq(), m.GetRunId(), err)
		}
	}
	hashes, err := proof.SplitHashes(places.Hashes)
	if err == nil {
		err = proof.CheckInclusion(int64(c.tree.Size), c.tree.Root, c.indexes, c.leaves, hashes)
	}
	if err != nil {
		first, last := events[0], events[len(events)-1]
		return fmt.Errorf("%w: those from runSeq %d of run %q to runSeq %d of run %q: %w", ErrRecords,
			first.GetRunSeq(), first.GetRunId(), last.GetRunSeq(), last.GetRunId(), err)
	}
	return nil
}

// event computes the leaf of an event from everything that it says.
func (c *checker) event(m *runlogv1.EventRecord, places *runlogv1.RecordPlaces, i int) error {
	r, err := proof.RecordOf(m)
	if err != nil {
		return err
	}
	at, err := proof.PlaceOf(places, i)
	switch {
	case err != nil:
		return err
	case at.Index <= c.last:
		return fmt.Errorf("leaf %d comes after leaf %d", at.Index, c.last)
	case c.whole && at.Index != c.last+1:
		return fmt.Errorf("leaf %d comes after leaf %d: records between them are not shown", at.Index, c.last)
	}
	before := contract.Digest(places.Previous[i*len(contract.Digest{}):])
	known, ok := c.links.get(r.RunID)
	switch {
	case ok && (known.seq >= r.RunSeq || known.chain != before):
		return fmt.Errorf("it does not follow runSeq %d, which comes before it in the log", known.seq)
	case ok || before == contract.Digest{}:
		c.linked++
	}
	chain := r.Chain(before)
	c.links.put(r.RunID, link{r.RunSeq, chain})
	leaf := contract.Leaf{Chain: chain, Position: at.Position, Offset: at.Offset, PersistedAt: r.PersistedAt}
	c.indexes, c.leaves = append(c.indexes, at.Index), append(c.leaves, leaf.Hash())
	c.last = at.Index
	c.records++
	return nil
}
