package projector

import lru "container/list"

// snapshotCache keeps the runs changed last. Reading does not count as use, so that many may read at
// a time.
type snapshotCache struct {
	limit int
	order *lru.List // of *cached, changed last first
	runs  map[string]*lru.Element
}

type cached struct {
	runID    string
	snapshot *Snapshot
	stored   uint64 // lastEventSeq of the stored snapshot
}

func newSnapshotCache(limit int) *snapshotCache {
	return &snapshotCache{limit: limit, order: lru.New(), runs: map[string]*lru.Element{}}
}

func (c *snapshotCache) get(runID string) (s *Snapshot, stored uint64) {
	if e := c.runs[runID]; e != nil {
		return e.Value.(*cached).snapshot, e.Value.(*cached).stored
	}
	return nil, 0
}

// put returns the run that had to leave, nil when there was room.
func (c *snapshotCache) put(runID string, s *Snapshot, stored uint64) *cached {
	if e := c.runs[runID]; e != nil {
		e.Value = &cached{runID, s, stored}
		c.order.MoveToFront(e)
		return nil
	}
	c.runs[runID] = c.order.PushFront(&cached{runID, s, stored})
	if c.order.Len() <= c.limit {
		return nil
	}
	oldest := c.order.Remove(c.order.Back()).(*cached)
	delete(c.runs, oldest.runID)
	return oldest
}
