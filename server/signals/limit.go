package signals

import (
	"container/list"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

const (
	// limitPeriod is the time in which a run may get a number of signals (SIG-5).
	limitPeriod = time.Minute
	// maxCounted bounds how many runs are counted: about 10 MB with 60 signals each.
	maxCounted = 16 << 10
)

// limiter counts the signals of each run in periods that begin with a signal. A signal that comes
// again in the period counts once: it may be a retry of a call that has failed. The limiter forgets
// the run whose period began first when it has counted maxCounted runs.
type limiter struct {
	most  int
	clock func() time.Time
	seed  maphash.Seed

	mu      sync.Mutex
	byKey   map[string]*list.Element // of *period
	periods *list.List               // in the order in which they began
}

// period is the count of one run.
type period struct {
	key   string
	began time.Time
	ids   []uint64 // hashes of the signals' ids
}

func newLimiter(most int, clock func() time.Time) *limiter {
	return &limiter{most: most, clock: clock, seed: maphash.MakeSeed(), byKey: map[string]*list.Element{}, periods: list.New()}
}

// take counts a signal of a run. A delay above 0 says that the run has had its signals, and when
// the next one is counted.
func (l *limiter) take(key, signalID string) (delay time.Duration) {
	now, id := l.clock(), maphash.String(l.seed, signalID)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	e := l.byKey[key]
	if e == nil {
		e = l.periods.PushBack(&period{key: key, began: now})
		l.byKey[key] = e
	}
	p := e.Value.(*period)
	switch {
	case slices.Contains(p.ids, id):
		return 0
	case len(p.ids) >= l.most:
		return max(p.began.Add(limitPeriod).Sub(now), time.Millisecond)
	}
	p.ids = append(p.ids, id)
	return 0
}

// forget drops the periods that are over, and the first one if there are too many. A clock that has
// gone back ends a period too.
func (l *limiter) forget(now time.Time) {
	for e := l.periods.Front(); e != nil; e = l.periods.Front() {
		p := e.Value.(*period)
		if age := now.Sub(p.began); age >= 0 && age < limitPeriod && l.periods.Len() < maxCounted {
			return
		}
		l.periods.Remove(e)
		delete(l.byKey, p.key)
	}
}
