package load

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"runlog/bench/target"
)

// Queued enters runs into a queue, and checks that each is taken once.
type Queued struct {
	queue   target.Queue
	session *Session
	mu      sync.Mutex
	asked   map[string]bool // requested, and not taken
	made    atomic.Uint64
}

// NewQueued returns the requests and workers of a queue.
func NewQueued(s *Session, q target.Queue) *Queued {
	return &Queued{queue: q, session: s, asked: map[string]bool{}}
}

// Close closes the queue.
func (q *Queued) Close() error { return q.queue.Close() }

// Request enters a new run.
func (q *Queued) Request(ctx context.Context, caller int) error {
	run := q.session.RunID("queue_" + strconv.Itoa(caller) + "_" + strconv.FormatUint(q.made.Add(1), 10))
	q.mu.Lock()
	q.asked[run] = true
	q.mu.Unlock()
	return q.queue.Request(ctx, run)
}

// take waits for a run. It is an error if the run was taken before.
func (q *Queued) take(ctx context.Context) (target.Job, error) {
	job, err := q.queue.Take(ctx)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.asked[job.RunID()] {
		return nil, target.WrongAnswer("WRONG_RUN", "run %s was not requested, or was taken before", job.RunID())
	}
	delete(q.asked, job.RunID())
	return job, nil
}

// Cycle requests a run, takes the next one of the queue, and starts it.
func (q *Queued) Cycle(ctx context.Context, caller int) (int, error) {
	if err := q.Request(ctx, caller); err != nil {
		return 0, err
	}
	job, err := q.take(ctx)
	if err != nil {
		return 0, err
	}
	return 1, job.Started(ctx)
}

// Work takes and starts runs until ctx ends. It tells of each run when it has it, and of a failure
// instead of the next one.
func (q *Queued) Work(ctx context.Context, taken chan<- error) {
	for ctx.Err() == nil {
		job, err := q.take(ctx)
		if ctx.Err() != nil {
			return
		}
		taken <- err
		if err != nil {
			return
		}
		if err := job.Started(ctx); err != nil && ctx.Err() == nil {
			taken <- err
			return
		}
	}
}
