package storage

import (
	"sort"
	"sync"
	"unsafe"

	"runlog/proto/contract"
)

// chains is a ring of the chain digests of the records that were applied last, in commit order. To
// work one out again costs its reader four hashes.
//
// The goroutine that applies writes it, with the lock: the digests of a proposal at once, when
// readers can see its records, so that no refused command is in it. An install empties it. Readers
// of the log take digests from it, with the lock, by the places of the records.
//
// The ring waits for no reader. One that was overtaken gets nothing, and works the digests out: so
// does a reader after a restart, because the ring is in memory alone.
type chains struct {
	most int // slots

	mu struct {
		sync.Mutex
		// slots has record n since the ring was empty, from 0, at n % most. It grows up to most.
		slots []chained
		next  uint64 // the record that comes next
		taken uint64 // the record behind those that were taken last
	}
}

// chained is the chain digest of a record, with the position of its proposal.
type chained struct {
	position Position
	digest   contract.Digest
}

func newChains(bytes int) *chains {
	return &chains{most: max(1, bytes/int(unsafe.Sizeof(chained{})))}
}

// put adds the digests of a proposal, which follows all others.
func (c *chains) put(position Position, digests []contract.Digest) {
	if len(digests) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range digests {
		if len(c.mu.slots) < c.most {
			c.mu.slots = append(c.mu.slots, chained{position, d})
		} else {
			*c.at(c.mu.next) = chained{position, d}
		}
		c.mu.next++
	}
}

// clear empties the ring.
func (c *chains) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.slots, c.mu.next, c.mu.taken = c.mu.slots[:0], 0, 0
}

// take appends the digests of n records of a proposal, from its record first on. ok: they were
// there.
func (c *chains) take(dst []contract.Digest, position Position, first, n int) (_ []contract.Digest, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	begin, ok := c.find(position, uint64(first))
	begin += uint64(first)
	if end := begin + uint64(n); !ok || n == 0 || end > c.mu.next || c.at(end-1).position != position {
		return dst, false
	}
	for i := range uint64(n) {
		dst = append(dst, c.at(begin+i).digest)
	}
	c.mu.taken = begin + uint64(n)
	return dst, true
}

// find returns the first record of a proposal. The caller holds mu. Most readers continue where the
// last one ended, so that is tried first: that many records of the proposal were taken before.
func (c *chains) find(position Position, before uint64) (record uint64, ok bool) {
	oldest := c.mu.next - uint64(len(c.mu.slots))
	if record = c.mu.taken - before; c.mu.taken >= before && c.begins(record, oldest, position) {
		return record, true
	}
	record = oldest + uint64(sort.Search(len(c.mu.slots), func(i int) bool {
		return c.at(oldest+uint64(i)).position >= position
	}))
	return record, c.begins(record, oldest, position)
}

// begins reports whether a record is certainly the first one of a proposal. The oldest one that is
// there may follow one that was overwritten. The caller holds mu.
func (c *chains) begins(record, oldest uint64, position Position) bool {
	if record < oldest || record >= c.mu.next || c.at(record).position != position {
		return false
	}
	return record == 0 || record > oldest && c.at(record-1).position < position
}

func (c *chains) at(record uint64) *chained { return &c.mu.slots[record%uint64(c.most)] }

// AppendChain appends the chain digests of a commit's records (APP-11). first is the number of the
// first one among the records of its proposal, from 0. Those of the newest commits are in memory
// (Options.ChainBytes); of others they are worked out, see Commit.AppendChain.
func (s *Store) AppendChain(dst []contract.Digest, c *Commit, first int) []contract.Digest {
	if c.Detail != Whole {
		if dst, ok := s.chains.take(dst, c.Position, first, len(c.Records)); ok {
			return dst
		}
	}
	return c.AppendChain(dst)
}
