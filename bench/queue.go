package bench

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"runlog/bench/load"
	"runlog/bench/target"
)

// openQueue prepares queue: each caller requests a run, takes the next one of the queue, and starts
// it.
func openQueue(b *bed) (*work, error) {
	q, err := queueOf(b, b.w.Callers)
	if err != nil {
		return nil, err
	}
	w := &work{release: q.queue.Close}
	for i := range b.w.Callers {
		w.lanes = append(w.lanes, load.Caller(func(ctx context.Context) (int, error) { return q.cycle(ctx, i) }).Lane())
	}
	return w, nil
}

// queueWork checks that each run is taken once.
type queueWork struct {
	queue   target.Queue
	session *load.Session
	mu      sync.Mutex
	asked   map[string]bool // requested, and not taken
	made    atomic.Uint64
}

func queueOf(b *bed, workers int) (*queueWork, error) {
	queuer, ok := b.target.(target.Queuer)
	if !ok {
		return nil, errNoQueue
	}
	q, err := queuer.OpenQueue(context.Background(), workers)
	if err != nil {
		return nil, err
	}
	return &queueWork{queue: q, session: b.session, asked: map[string]bool{}}, nil
}

// request enters a new run.
func (q *queueWork) request(ctx context.Context, caller int) error {
	run := q.session.RunID("queue_" + strconv.Itoa(caller) + "_" + strconv.FormatUint(q.made.Add(1), 10))
	q.mu.Lock()
	q.asked[run] = true
	q.mu.Unlock()
	return q.queue.Request(ctx, run)
}

// take waits for a run. It is an error if the run was taken before.
func (q *queueWork) take(ctx context.Context) (target.Job, error) {
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

func (q *queueWork) cycle(ctx context.Context, caller int) (int, error) {
	if err := q.request(ctx, caller); err != nil {
		return 0, err
	}
	job, err := q.take(ctx)
	if err != nil {
		return 0, err
	}
	return 1, job.Started(ctx)
}

// idleWorkers are enough that one always waits: a start takes them a few calls.
const idleWorkers = 4

// openIdleQueue prepares queue-idle: runs are requested while workers wait, so few that the queue
// is empty. A call lasts until a worker has the run.
func openIdleQueue(b *bed) (*work, error) {
	q, err := queueOf(b, b.w.Callers*idleWorkers)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	taken := make(chan error, b.w.Callers*idleWorkers)
	var workers sync.WaitGroup
	for range b.w.Callers * idleWorkers {
		workers.Go(func() { q.work(ctx, taken) })
	}
	w := &work{release: func() error {
		stop()
		workers.Wait()
		return q.queue.Close()
	}}
	for i := range b.w.Callers {
		w.lanes = append(w.lanes, load.Caller(func(ctx context.Context) (int, error) {
			if err := q.request(ctx, i); err != nil {
				return 0, err
			}
			select {
			case err := <-taken:
				return 1, err
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}).Lane())
	}
	return w, nil
}

// work takes and starts runs until ctx ends. It tells of each run when it has it, and of a failure
// instead of the next one.
func (q *queueWork) work(ctx context.Context, taken chan<- error) {
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

// openLeased prepares append-leased, and append-fenced with the fences.
func openLeased(fenced bool) func(*bed) (*work, error) {
	return func(b *bed) (*work, error) {
		leaser, ok := b.target.(target.Leaser)
		if !ok {
			return nil, errNoQueue
		}
		var sources []*load.Leased
		w := newWork(b, sourcesOf(b, func(i int) *load.Leased {
			s := load.NewLeased(b.session, i)
			sources = append(sources, s)
			return s
		}))
		w.prepare = func(ctx context.Context) error {
			for _, s := range sources {
				fence, err := leaser.Lease(ctx, s.Request())
				if err != nil {
					return err
				}
				if fenced {
					s.Hold(fence)
				}
			}
			return nil
		}
		return w, nil
	}
}

// openSignals prepares signal: a call lasts from the sending of a signal until an engine, which
// watches the accepted signals of all runs, has it.
func openSignals(b *bed) (*work, error) {
	signaller, ok := b.target.(target.Signaller)
	if !ok {
		return nil, errNoSignals
	}
	x := &signals{target: signaller, session: b.session, heard: map[string]chan struct{}{}}
	ctx, stop := context.WithCancel(context.Background())
	var engine sync.WaitGroup
	w := &work{prepare: func(calls context.Context) error {
		ready, ended := make(chan struct{}), make(chan error, 1)
		engine.Go(func() { ended <- signaller.Signals(ctx, sync.OnceFunc(func() { close(ready) }), x.told) })
		select {
		case <-ready:
			return x.begin(calls)
		case err := <-ended:
			return err
		}
	}}
	w.release = func() error {
		stop()
		engine.Wait()
		return nil
	}
	for range b.w.Callers {
		w.lanes = append(w.lanes, load.Caller(x.send).Lane())
	}
	return w, nil
}

// signalRuns is so large that no run gets more signals than it takes in a minute (SIG-5).
const signalRuns = 200

// signals are those on their way to the engine.
type signals struct {
	target  target.Signaller
	session *load.Session
	made    atomic.Uint64
	mu      sync.Mutex
	heard   map[string]chan struct{} // by signalId
}

func (x *signals) runID(n uint64) string {
	return x.session.RunID("signal_" + strconv.FormatUint(n%signalRuns, 10))
}

func (x *signals) begin(ctx context.Context) error {
	for n := range uint64(signalRuns) {
		if err := x.target.Begin(ctx, x.runID(n)); err != nil {
			return err
		}
	}
	return nil
}

func (x *signals) told(signalID string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if heard := x.heard[signalID]; heard != nil {
		close(heard)
		delete(x.heard, signalID)
	}
}

func (x *signals) send(ctx context.Context) (int, error) {
	n, heard := x.made.Add(1), make(chan struct{})
	id := "signal-" + strconv.FormatUint(n, 10)
	x.mu.Lock()
	x.heard[id] = heard
	x.mu.Unlock()
	if err := x.target.Signal(ctx, x.runID(n), id); err != nil {
		return 0, err
	}
	select {
	case <-heard:
		return 1, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
