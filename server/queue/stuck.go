package queue

import (
	"sync"
	"time"

	"runlog/storage/machine/queue"
)

// stuck tells for how long queues have runs that may be leased, and no worker does anything. It
// compares the counts of one look with those of the next, so another leader begins at 0.
type stuck struct {
	mu     sync.Mutex
	queues map[uint64]idleQueue // with a run that may be leased, by number; as many as are counted
}

// idleQueue is a queue since a worker was last seen to do something.
type idleQueue struct {
	counts progress
	since  int64
}

// progress are the counts of a queue that workers change, and requests do not.
type progress struct{ starts, ends, leased, running, exhausted uint64 }

// longest returns how long the queue that is idle for longest has been so. queues are all that were
// counted.
func (s *stuck) longest(queues []*queue.Queue, now int64) (most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.queues
	s.queues = map[uint64]idleQueue{}
	for _, q := range queues {
		if q.Leasable() == 0 {
			continue
		}
		idle, known := last[q.Number]
		if counts := (progress{q.Starts, q.Ends, q.Leased, q.Running, q.Exhausted}); !known || counts != idle.counts {
			idle = idleQueue{counts, now}
		}
		s.queues[q.Number] = idle
		most = max(most, time.Duration(now-idle.since))
	}
	return most
}
