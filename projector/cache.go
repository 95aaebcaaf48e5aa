package projector

import (
	lru "container/list"
	"time"

	"runlog/projector/run"
	"runlog/storage"
)

// snapshotCache has the newest snapshots of the runs that changed last, and knows which of them the
// database does not have yet. Reading does not count as use, so that many may read at a time.
type snapshotCache struct {
	limit int // of weight
	// weight is about what the snapshots take, in bytes.
	weight   int
	runs     map[string]*cached
	order    *lru.List // of *cached, changed last first
	unstored *lru.List // of *cached, the one that has waited longest first
}

// cached is a run in memory.
type cached struct {
	runID    string
	snapshot *run.Snapshot
	// weight is the length of the canonical form when it was stored, and what the payloads of the
	// events since could add to it.
	weight int
	// since says from when on events are in the snapshot that are not in the database. Only for one
	// in unstored.
	since  moment
	place  *lru.Element
	queued *lru.Element // in unstored; nil: the database has the snapshot as it is
}

// moment is a point in the progress of folding.
type moment struct {
	position storage.Position // up to which everything was folded
	events   uint64           // folded before
	at       time.Time
}

// baseWeight is what a snapshot weighs beside its events.
const baseWeight = 1 << 10

func newSnapshotCache(limit int) *snapshotCache {
	return &snapshotCache{limit: limit, runs: map[string]*cached{}, order: lru.New(), unstored: lru.New()}
}

// get returns nil when memory does not have the run.
func (c *snapshotCache) get(runID string) *run.Snapshot {
	if e := c.runs[runID]; e != nil {
		return e.snapshot
	}
	return nil
}

// put takes over what a round folded of a run: heavier by so much, and, where the snapshot changed,
// not in the database since then.
func (c *snapshotCache) put(f *folded, since moment) {
	e := c.runs[f.Run.RunID]
	if e == nil {
		e = &cached{runID: f.Run.RunID, weight: baseWeight}
		c.weight += baseWeight
		c.runs[e.runID], e.place = e, c.order.PushFront(e)
	}
	c.order.MoveToFront(e.place)
	e.snapshot = f.Now
	e.weight += f.weight
	c.weight += f.weight
	if e.queued == nil && f.Now != f.Before {
		e.since, e.queued = since, c.unstored.PushBack(e)
	}
}

// oldest returns the run that has waited longest to be stored, nil when the database has
// everything.
func (c *snapshotCache) oldest() *cached {
	if first := c.unstored.Front(); first != nil {
		return first.Value.(*cached)
	}
	return nil
}

// surplus returns the runs that have to leave, those that changed first; never the one that changed
// last.
func (c *snapshotCache) surplus() (leaving []*cached) {
	over := c.weight - c.limit
	for place := c.order.Back(); over > 0 && place != c.order.Front(); place = place.Prev() {
		e := place.Value.(*cached)
		leaving = append(leaving, e)
		over -= e.weight
	}
	return leaving
}

// stored notes that the database gets the snapshot as it is, with a canonical form of so many
// bytes.
func (c *snapshotCache) stored(e *cached, length int) {
	c.weight += baseWeight + length - e.weight
	e.weight = baseWeight + length
	c.unstored.Remove(e.queued)
	e.queued = nil
}

// remove forgets runs that the database has.
func (c *snapshotCache) remove(leaving []*cached) {
	for _, e := range leaving {
		c.order.Remove(e.place)
		delete(c.runs, e.runID)
		c.weight -= e.weight
	}
}
