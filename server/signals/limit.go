package signals

import (
	"container/list"
	"sync"
	"time"
)

const (
	// limitPeriod is the time in which a run may get a number of signals (SIG-5).
	limitPeriod = time.Minute
	// maxCounted bounds how many runs are counted, about 3 MB.
	maxCounted = 16 << 10
)

// limiter counts the signals of each run in periods that begin with a signal. It forgets the run
// whose period began first when it has counted maxCounted runs.
type limiter struct {
	most  int
	clock func() time.Time

	mu      sync.Mutex
	byKey   map[string]*list.Element // of *period
	periods *list.List               // in the order in which they began
}

// period is the count of one run.
type period struct {
	key   string
	began time.Time
	count int
}

func newLimiter(most int, clock func() time.Time) *limiter {
	return &limiter{most: most, clock: clock, byKey: map[string]*list.Element{}, periods: list.New()}
}

// take counts one signal of a key. A delay above 0 says that the key has had its signals, and when
// the next one is counted.
func (l *limiter) take(key string) (delay time.Duration) {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	e := l.byKey[key]
	if e == nil {
		e = l.periods.PushBack(&period{key: key, began: now})
		l.byKey[key] = e
	}
	p := e.Value.(*period)
	if p.count >= l.most {
		return max(p.began.Add(limitPeriod).Sub(now), time.Millisecond)
	}
	p.count++
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
