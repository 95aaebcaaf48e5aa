package stamps

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

var (
	// ErrAhead means that a stamp is too far ahead.
	ErrAhead = errors.New("stamps: the stamp is too far ahead")
	// ErrUnmeasured means that no other voter has shown its clock yet, or none since this node's
	// clock jumped ahead.
	ErrUnmeasured = errors.New("stamps: the clocks of the other voters are not known yet")
)

// Options of a Judge.
type Options struct {
	// Limit is how far ahead a stamp may be. Not positive: every stamp is taken.
	Limit time.Duration
	// Clock is that of the node. Default: time.Now.
	Clock func() time.Time
	// Monotonic returns times that differ by the time that has elapsed, whatever happens to the
	// clock. Default: Clock, for time.Now has a monotonic clock reading.
	Monotonic func() time.Time
	// Last returns the stamp of the last applied entry, 0 without one. Default: none.
	Last func() int64
}

// Judge makes the stamps of a leader, and decides which stamps this node takes, as a leader and as
// a follower. Its methods may be called by many goroutines. Stamps are nanoseconds since 1970.
type Judge struct {
	opts  Options
	clock clock // has a lock of its own

	// Written by Measure alone, which one goroutine calls.

	// ceiling is the highest stamp that a majority of the voters accepts, and own this node's clock
	// then; nil: unknown. Both advance with time.
	ceiling, own atomic.Pointer[moving]
	// measured is set once another voter has answered, or there is none. Nothing clears it.
	measured atomic.Bool

	// seen is the last applied stamp, and when this node noticed it. The goroutine that notices
	// another one stores it. If two notice it at once, either time will do.
	seen    atomic.Pointer[moving]
	refused atomic.Uint64 // counted by Accept
	silent  atomic.Bool   // set and cleared by Silence
	asked   chan struct{} // has room for one: Admit has refused a stamp
}

// moving is a time that advances. It does not depend on the node's clock.
type moving struct {
	stamp int64
	at    time.Time
}

func (m *moving) now() int64 { return m.stamp + int64(time.Since(m.at)) }

// New returns a judge that knows no other clock yet, for a node that starts.
func New(opts Options) *Judge {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Last == nil {
		opts.Last = func() int64 { return 0 }
	}
	if opts.Monotonic == nil {
		opts.Monotonic = opts.Clock
	}
	return &Judge{opts: opts, asked: make(chan struct{}, 1)}
}

// leaderShare of the limit is what a leader uses, in tenths. The rest covers the error of its
// measurements: what it proposes must not be refused, because it stays in its log.
const leaderShare = 9

func (j *Judge) leaderLimit() int64 { return int64(j.opts.Limit) / 10 * leaderShare }

// reference returns the time that a node with this clock compares stamps with.
func (j *Judge) reference(clock int64) int64 {
	if last := j.clusterTime(); clock < last-int64(j.opts.Limit) {
		return last
	}
	return clock
}

// clusterTime is the last applied stamp, plus the time since this node noticed it.
func (j *Judge) clusterTime() int64 {
	last, seen := j.opts.Last(), j.seen.Load()
	if seen == nil || seen.stamp != last {
		seen = &moving{last, time.Now()}
		j.seen.Store(seen)
	}
	return seen.now()
}

// Accept returns an error that wraps ErrAhead if this node, as a follower, refuses the stamp of an
// entry that is not committed.
func (j *Judge) Accept(stamp int64) error {
	if j.opts.Limit <= 0 {
		return nil
	}
	ahead := stamp - j.reference(j.opts.Clock().UnixNano())
	if ahead <= int64(j.opts.Limit) {
		return nil
	}
	j.refused.Add(1)
	return fmt.Errorf("%w: by %v, at most %v", ErrAhead, time.Duration(ahead), j.opts.Limit)
}

// Refused counts the stamps that Accept refused.
func (j *Judge) Refused() uint64 { return j.refused.Load() }

// Measure takes what the clocks of other voters show now; voters counts all, this node included,
// and is 0 while the node does not know them. A voter that does not answer is left out. Without any
// answer, the earlier measurement holds: clocks advance.
func (j *Judge) Measure(voters int, clocks []int64) {
	switch {
	case voters == 1: // It has no other clock to compare with.
		j.ceiling.Store(nil)
		j.measured.Store(true)
		return
	case j.opts.Limit <= 0 || len(clocks) == 0:
		return
	}
	references := []int64{math.MaxInt64} // This node takes its own stamps.
	for _, clock := range clocks {
		references = append(references, j.reference(clock))
	}
	slices.Sort(references)
	slices.Reverse(references)
	// If fewer than a majority answer, none of those may refuse.
	at := min(voters/2, len(clocks))
	now := time.Now()
	j.ceiling.Store(&moving{references[at] + j.leaderLimit(), now})
	j.own.Store(&moving{j.opts.Clock().UnixNano(), now})
	j.measured.Store(true)
}

// Measured reports whether a leader may propose at all: another voter has shown its clock, or there
// is none, or no limit.
func (j *Judge) Measured() bool { return j.opts.Limit <= 0 || j.measured.Load() }

// Admit returns an error if a leader must not propose with the stamp: ErrUnmeasured, or one that
// wraps ErrAhead if a majority of the voters would refuse it.
func (j *Judge) Admit(stamp int64) error {
	ahead := j.AheadBy(stamp)
	switch {
	case j.opts.Limit <= 0 || ahead == 0 && j.Measured() && (j.slews() || !j.jumped(stamp)):
		return nil
	default:
		select {
		case j.asked <- struct{}{}:
		default:
		}
	}
	if ahead == 0 {
		return ErrUnmeasured
	}
	return fmt.Errorf("%w: it is ahead of a majority of the voters by %v, at most %v", ErrAhead, ahead, j.opts.Limit)
}

// jumped reports whether this node's clock has jumped ahead since the others were asked: their
// clocks may have changed too, and are asked again.
func (j *Judge) jumped(stamp int64) bool {
	own := j.own.Load()
	return own != nil && j.ceiling.Load() != nil && stamp-own.now() > int64(j.opts.Limit)-j.leaderLimit()
}

// Asked returns a channel that receives after a stamp was not admitted.
func (j *Judge) Asked() <-chan struct{} { return j.asked }

// Ahead returns how far this node's clock is ahead of a majority of the voters; 0: not too far to
// lead.
func (j *Judge) Ahead() time.Duration { return j.AheadBy(j.opts.Clock().UnixNano()) }

// AheadBy returns how far a stamp is ahead of a majority; 0: not too far for a leader.
func (j *Judge) AheadBy(stamp int64) time.Duration {
	ceiling := j.ceiling.Load()
	if ceiling == nil {
		return 0
	}
	beyond := stamp - ceiling.now()
	if beyond <= 0 {
		return 0
	}
	return time.Duration(beyond + j.leaderLimit())
}

// Silence makes a leader send nothing more, so that its lease ends, and does not let the node stand
// for election; or it ends that.
func (j *Judge) Silence(on bool) { j.silent.Store(on) }

// Silent reports whether Silence is on.
func (j *Judge) Silent() bool { return j.silent.Load() }
