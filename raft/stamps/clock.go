package stamps

import (
	"sync"
	"time"
)

const (
	// slewShare is the part of elapsed time by which stamps catch up with the node's clock, or wait
	// for it, as a divisor: a tenth. So a lease of 30 s lasts at least 27 s and at most 33 s.
	slewShare = 10
	// slewStep bounds the time for which stamps catch up at once: what a leader that was idle has
	// not used is lost. A leader asks for a stamp about once a second.
	slewStep = time.Second
)

// clock is the clock of stamps. It advances with elapsed time, and is slewed towards the clock of
// the leader, so that a jump of that clock neither ends leases early nor makes them last longer.
type clock struct {
	sync.Mutex
	// set once the node has led or followed since its start: before, the time since the last stamp
	// is unknown.
	set   bool
	stamp int64     // what it showed last
	at    time.Time // by Options.Monotonic, then
}

// slewed returns the stamp of a proposal made now, for a node whose clock shows wall. Its caller
// holds the mutex.
func (c *clock) slewed(wall int64, at time.Time) int64 {
	elapsed := at.Sub(c.at)
	stamp := c.stamp + int64(elapsed)
	most := int64(min(max(elapsed, 0), slewStep) / slewShare)
	return stamp + min(max(wall-stamp, -most), most)
}

// Next returns the stamp for a proposal of this node, if it leads. The first one since its start is
// what its clock shows. Where stamps are further ahead than a majority of the voters takes, it is
// the highest stamp that they take: apply then gives the next nanosecond.
func (j *Judge) Next() int64 {
	wall, at := j.opts.Clock().UnixNano(), j.opts.Monotonic()
	j.clock.Lock()
	defer j.clock.Unlock()
	switch {
	case j.clock.set:
		j.clock.stamp = j.clock.slewed(wall, at)
	case j.AheadBy(wall) > 0 || !j.Measured() || j.jumped(wall):
		return wall // Admit refuses it.
	default:
		j.clock.stamp = max(wall, j.opts.Last())
	}
	j.clock.at, j.clock.set = at, true
	return j.bounded(j.clock.stamp)
}

// Now returns the stamp that a proposal would get now, as far as this node knows.
func (j *Judge) Now() time.Time {
	wall, at := j.opts.Clock().UnixNano(), j.opts.Monotonic()
	j.clock.Lock()
	defer j.clock.Unlock()
	if j.clock.set {
		wall = j.bounded(j.clock.slewed(wall, at))
	}
	return time.Unix(0, max(wall, j.opts.Last()))
}

func (j *Judge) bounded(stamp int64) int64 {
	if ceiling := j.ceiling.Load(); ceiling != nil {
		return min(stamp, ceiling.now())
	}
	return stamp
}

// Lead makes a node that begins to lead continue from the last applied stamp.
func (j *Judge) Lead() {
	j.clock.Lock()
	defer j.clock.Unlock()
	at, last := j.opts.Monotonic(), j.opts.Last()
	if j.clock.set && j.clock.stamp+int64(at.Sub(j.clock.at)) < last {
		j.clock.stamp, j.clock.at = last, at
	}
}

// Follow sets the clock of stamps by a stamp that a leader has just made, so that this node
// continues from there if it leads next. A message may have waited on its way, so a stamp that this
// node has already followed is not taken back at once.
func (j *Judge) Follow(stamp int64) {
	at := j.opts.Monotonic()
	j.clock.Lock()
	defer j.clock.Unlock()
	if elapsed := at.Sub(j.clock.at); j.clock.set {
		stamp = max(stamp, j.clock.stamp+int64(elapsed-max(elapsed, 0)/slewShare))
	}
	j.clock.stamp, j.clock.at, j.clock.set = stamp, at, true
}

// slews reports whether stamps do not depend on a jump of this node's clock.
func (j *Judge) slews() bool {
	j.clock.Lock()
	defer j.clock.Unlock()
	return j.clock.set
}
