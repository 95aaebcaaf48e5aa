package projector

import (
	lru "container/list"
	"time"

	"runlog/projector/run"
	"runlog/storage"
)

// snapshotCache is a write-back cache of snapshots. It evicts the run that changed first, and knows
// which snapshots are not stored yet. A read does not count as use, so that many may read at a
// time.
//
// Projector.live guards runs and the snapshots in it: run holds its lock to change them, readers to
// get them. All else is used by run alone, without a lock.
type snapshotCache struct {
	limit int // of weight
	// weight is about the size of the snapshots, in bytes.
	weight   int
	runs     map[string]*cached
	order    *lru.List // of *cached, changed last first
	unstored *lru.List // of *cached, the one that has waited longest first
}

// cached is a run in memory.
type cached struct {
	runID string
	// snapshot is replaced, and never changed: a reader keeps what it has got.
	snapshot *run.Snapshot
	// weight is the length of the canonical form when it was stored, and the most that the events
	// since could add to it.
	weight int
	// since is the moment after which events are in the snapshot and not in the database. It is set
	// while the run is in unstored.
	since  moment
	at     *lru.Element // in order
	queued *lru.Element // in unstored; nil: the database has the snapshot as it is
}

// moment is a point in the progress of folding.
type moment struct {
	position storage.Position // up to which everything was folded
	events   uint64           // folded before
	at       time.Time
}

// baseWeight is the weight of a snapshot without events.
const baseWeight = 1 << 10

func newSnapshotCache(limit int) *snapshotCache {
	return &snapshotCache{limit: limit, runs: map[string]*cached{}, order: lru.New(), unstored: lru.New()}
}

// get returns the snapshot of a run, nil if it is not in memory.
func (c *snapshotCache) get(runID string) *run.Snapshot {
	if e := c.runs[runID]; e != nil {
		return e.snapshot
	}
	return nil
}

// put takes over a run that a round has folded. If its snapshot changed, it is unstored since then.
func (c *snapshotCache) put(f *folded, since moment) {
	e := c.runs[f.Run.RunID]
	if e == nil {
		e = &cached{runID: f.Run.RunID, weight: baseWeight}
		c.weight += baseWeight
		c.runs[e.runID], e.at = e, c.order.PushFront(e)
	}
	c.order.MoveToFront(e.at)
	e.snapshot = f.Now
	e.weight += f.weight
	c.weight += f.weight
	if e.queued == nil && f.Now != f.Before {
		e.since, e.queued = since, c.unstored.PushBack(e)
	}
}

// oldest returns the run that has waited longest to be stored, nil if everything is stored.
func (c *snapshotCache) oldest() *cached {
	if first := c.unstored.Front(); first != nil {
		return first.Value.(*cached)
	}
	return nil
}

// surplus returns the runs to evict, in the order of their last changes; never the one that changed
// last.
func (c *snapshotCache) surplus() (leaving []*cached) {
	over := c.weight - c.limit
	for at := c.order.Back(); over > 0 && at != c.order.Front(); at = at.Prev() {
		e := at.Value.(*cached)
		leaving = append(leaving, e)
		over -= e.weight
	}
	return leaving
}

// stored notes that the snapshot is being stored, with the length of its canonical form.
func (c *snapshotCache) stored(e *cached, length int) {
	c.weight += baseWeight + length - e.weight
	e.weight = baseWeight + length
	c.unstored.Remove(e.queued)
	e.queued = nil
}

// remove evicts runs that are stored.
func (c *snapshotCache) remove(leaving []*cached) {
	for _, e := range leaving {
		c.order.Remove(e.at)
		delete(c.runs, e.runID)
		c.weight -= e.weight
	}
}
