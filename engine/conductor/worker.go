package conductor

import (
	"context"
	"sync"
	"time"

	"runlog/engine/conductor/api"
)

const (
	pollWait = 2 * time.Second
	// minBackoff and maxBackoff are the waits after a poll that failed, or that found nothing
	// early.
	minBackoff, maxBackoff = 100 * time.Millisecond, 5 * time.Second
)

// tasks are ids of tasks.
type tasks struct {
	mu  sync.Mutex
	ids map[string]bool
}

// take reports whether a task was not taken.
func (t *tasks) take(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids[id] {
		return false
	}
	if t.ids == nil {
		t.ids = map[string]bool{}
	}
	t.ids[id] = true
	return true
}

func (t *tasks) leave(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ids, id)
}

// Run polls and executes the tasks of Queues until ctx ends. Then the executions end with it, and
// Run tells Conductor, which takes at most some seconds. All goroutines have ended when it returns.
func (e *Engine) Run(ctx context.Context) {
	var queues sync.WaitGroup
	for _, queue := range e.o.Queues {
		queues.Go(func() { e.poll(ctx, queue) })
	}
	for _, owner := range e.o.Isolation {
		queues.Go(func() { e.poll(ctx, owner.Queue()) })
	}
	queues.Wait()
}

// poll polls one queue, and works on its tasks.
func (e *Engine) poll(ctx context.Context, queue string) {
	slots := make(chan struct{}, e.o.Concurrency)
	var working sync.WaitGroup
	defer working.Wait()
	for backoff := minBackoff; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		free := 1 + cap(slots) - len(slots)
		found, err := e.o.API.Poll(ctx, queue, e.o.Worker, free, pollWait)
		<-slots
		for _, task := range found {
			slots <- struct{}{} // At most free tasks were asked for.
			working.Go(func() {
				defer func() { <-slots }()
				e.work(ctx, task)
			})
		}
		if err == nil {
			backoff = minBackoff
			continue
		}
		if ctx.Err() == nil {
			e.o.Logger.WarnContext(ctx, "cannot poll tasks; retrying", "queue", queue, "wait", backoff, "err", err)
		}
		sleep(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// work works on one task. If that fails, the task times out, and is tried again.
func (e *Engine) work(ctx context.Context, task api.Task) {
	if !e.running.take(task.ID) {
		return // It was delivered twice.
	}
	defer e.running.leave(task.ID)
	if err := e.handle(ctx, task); err != nil && ctx.Err() == nil {
		e.o.Logger.WarnContext(ctx, "cannot work on task; retrying after its timeout", "run", task.CorrelationID,
			"task", task.ReferenceName, "err", err)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
