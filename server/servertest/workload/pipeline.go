package workload

import (
	"context"
	"sync"
	"time"
)

const (
	// A pipeline bursts once in so many Thinks, in the mean, and each burst has up to pipeBurst
	// calls. At most pipeDepth calls wait.
	pipeThinks = 8
	pipeBurst  = 4
	pipeDepth  = 8
	// pipePatience is that of half of the calls, in times of Patience. It is longer than an
	// election takes.
	pipePatience = 3
)

// pipeline appends to one current run through the Appender until ctx ends, in bursts that do not
// wait for earlier ones. While a stream is broken or no node leads, calls of the run gather: one
// has no answer, and others wait behind it. Half of the calls outlast that, and their order is
// checked. The others time out.
func (w *worker) pipeline(ctx context.Context, place int) {
	var callers sync.WaitGroup
	defer callers.Wait()
	room := make(chan struct{}, pipeDepth)
	for ctx.Err() == nil {
		pause(ctx, time.Duration(w.rng.ExpFloat64()*pipeThinks*float64(w.clients.opts.Think)))
		for range 1 + w.rng.IntN(pipeBurst) {
			pause(ctx, gap(w.rng))
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			one := w.draw(w.current(place))
			if one.patience = pipePatience * w.clients.opts.Patience; w.rng.IntN(2) == 0 {
				one.patience = w.shortPatience()
			}
			callers.Go(func() {
				w.callQueued(ctx, one)
				<-room
			})
		}
	}
}
