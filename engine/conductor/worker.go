package conductor

import (
	"context"
	"sync"
	"time"

	"runlog/client/transport/outage"
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

// Run polls and executes the tasks of Queues until ctx ends. Then it takes no more tasks, and those
// that are executed may end within Grace. Run tells Conductor of the others, which takes at most
// some seconds. All goroutines have ended when it returns.
func (e *Engine) Run(ctx context.Context) {
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	var ending, queues sync.WaitGroup
	ending.Go(func() {
		select {
		case <-ctx.Done():
			sleep(working, e.o.Grace)
			end()
		case <-working.Done():
		}
	})
	defer func() { end(); ending.Wait() }()
	for _, queue := range e.o.Queues {
		queues.Go(func() { e.poll(ctx, working, queue) })
	}
	for _, owner := range e.o.Isolation {
		queues.Go(func() { e.poll(ctx, working, owner.Queue()) })
	}
	queues.Wait()
}

// poll polls one queue until ctx ends, and works on its tasks until working does.
func (e *Engine) poll(ctx, working context.Context, queue string) {
	slots := make(chan struct{}, e.o.Concurrency)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	pollLog := outage.Log{Logger: e.o.Logger}
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
			tasks.Go(func() {
				defer func() { <-slots }()
				e.work(working, task)
			})
		}
		if err == nil {
			pollLog.Succeeded(ctx, "tasks are polled again", "queue", queue)
			backoff = minBackoff
			continue
		}
		if ctx.Err() == nil {
			pollLog.Failed(ctx, "cannot poll tasks; retrying", "queue", queue, "wait", backoff, "err", err)
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
