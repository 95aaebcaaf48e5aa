package bench

import (
	"context"
	"sync"

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
	w := &work{release: q.Close}
	for i := range b.w.Callers {
		w.lanes = append(w.lanes, load.Caller(func(ctx context.Context) (int, error) { return q.Cycle(ctx, i) }).Lane())
	}
	return w, nil
}

func queueOf(b *bed, workers int) (*load.Queued, error) {
	queuer, ok := b.target.(target.Queuer)
	if !ok {
		return nil, errNoQueue
	}
	q, err := queuer.OpenQueue(context.Background(), workers)
	if err != nil {
		return nil, err
	}
	return load.NewQueued(b.session, q), nil
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
		workers.Go(func() { q.Work(ctx, taken) })
	}
	w := &work{release: func() error {
		stop()
		workers.Wait()
		return q.Close()
	}}
	for i := range b.w.Callers {
		w.lanes = append(w.lanes, load.Caller(func(ctx context.Context) (int, error) {
			if err := q.Request(ctx, i); err != nil {
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
	x := load.NewSignals(b.session, signaller)
	ctx, stop := context.WithCancel(context.Background())
	var engine sync.WaitGroup
	w := &work{prepare: func(calls context.Context) error {
		ready, ended := make(chan struct{}), make(chan error, 1)
		engine.Go(func() { ended <- signaller.Signals(ctx, sync.OnceFunc(func() { close(ready) }), x.Told) })
		select {
		case <-ready:
			return x.Begin(calls)
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
		w.lanes = append(w.lanes, load.Caller(x.Send).Lane())
	}
	return w, nil
}
