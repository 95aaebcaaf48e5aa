package intake

import (
	"context"
	"time"
)

const (
	// Bounds of a request. The server takes twice the events and four times the bytes.
	maxRequestEvents = 500
	maxRequestBytes  = 1 << 20
	// maxFlying is how many requests, each of another run, are in flight: enough for the server to
	// combine them into one write to disk.
	maxFlying = 8
	// maxWaitingBytes bounds the input in memory; reading stops above it.
	maxWaitingBytes = 16 << 20
)

// grouper groups the input into requests. A run has at most one request in flight, so its events
// keep their order. Events that arrive during a request go into the run's next one.
//
// One goroutine runs the grouper and owns its fields; only send runs on others.
type grouper struct {
	send   func(context.Context, []item) outcome
	report *report
	// stopRuns: nothing of a run is sent behind its first refused line.
	stopRuns bool
	stopped  map[string]int   // place of that line in the input, by run
	ticks    <-chan time.Time // redraw the progress bar; nil without one
	runs     map[string]*runQueue
	ready    []*runQueue // runs that can send now, the longest waiting first
	waiting  int         // bytes in all queues
	flying   int         // requests in flight
	finished chan landed
}

// runQueue holds the events of one run that are not sent yet.
// Invariant: it is in ready exactly when it has items and is not flying.
type runQueue struct {
	run    string
	items  []item
	flying bool
}

// landed is an answered request.
type landed struct {
	queue *runQueue
	outcome
}

func newGrouper(send func(context.Context, []item) outcome, r *report, ticks <-chan time.Time) *grouper {
	return &grouper{
		send: send, report: r, ticks: ticks,
		runs: make(map[string]*runQueue), stopped: make(map[string]int), finished: make(chan landed, maxFlying),
	}
}

// pump stores everything that in delivers. After a failure, or when the context ends, it sends
// nothing more, waits for the requests in flight, and returns the first failure.
func (g *grouper) pump(ctx context.Context, in <-chan chunk) error {
	var failure error
	interrupted := ctx.Done()
	for in != nil || len(g.ready) > 0 || g.flying > 0 {
		g.launch(ctx)
		feed := in
		if g.waiting >= maxWaitingBytes {
			feed = nil
		}
		var err error
		select {
		case c, ok := <-feed:
			if !ok {
				in = nil
				continue
			}
			g.accept(c)
			err = c.err
		case l := <-g.finished:
			g.land(l)
			err = l.err
		case now := <-g.ticks:
			g.report.tick(now)
		case <-interrupted:
			interrupted = nil
			err = ctx.Err()
		}
		if err != nil && failure == nil {
			failure = err
		}
		if failure != nil {
			in, g.ready = nil, nil
		}
	}
	return failure
}

// accept adds the items of a chunk to the queues of their runs.
func (g *grouper) accept(c chunk) {
	for _, r := range c.refused {
		g.stop(r.runID, r.place)
	}
	var skipped []item
	for _, it := range c.items {
		run := it.event.GetRunId()
		if at, stopped := g.stopped[run]; stopped && it.place > at {
			skipped = append(skipped, it)
			continue
		}
		q := g.runs[run]
		if q == nil {
			q = &runQueue{run: run}
			g.runs[run] = q
		}
		if len(q.items) == 0 && !q.flying {
			g.ready = append(g.ready, q)
		}
		q.items = append(q.items, it)
		g.waiting += it.bytes
	}
	g.report.taken(c)
	g.report.skipped(skipped)
}

// stop sends nothing more of a run from a place in the input on.
func (g *grouper) stop(run string, place int) {
	if _, stopped := g.stopped[run]; g.stopRuns && run != "" && !stopped {
		g.stopped[run] = place
	}
}

// launch sends requests of the runs that have waited longest.
func (g *grouper) launch(ctx context.Context) {
	for g.flying < maxFlying && len(g.ready) > 0 {
		q := g.ready[0]
		g.ready = g.ready[1:]
		batch := q.cutBatch()
		for _, it := range batch {
			g.waiting -= it.bytes
		}
		q.flying = true
		g.flying++
		go func() { g.finished <- landed{q, g.send(ctx, batch)} }()
	}
}

// land takes an answer; the run may send again.
func (g *grouper) land(l landed) {
	g.flying--
	l.queue.flying = false
	g.report.stored(l.outcome)
	if g.stopRuns && len(l.refused) > 0 {
		g.stop(l.queue.run, l.refused[0].place)
		for _, it := range l.queue.items {
			g.waiting -= it.bytes
		}
		g.report.skipped(l.queue.items)
		l.queue.items = nil
	}
	if len(l.queue.items) > 0 {
		g.ready = append(g.ready, l.queue)
	} else {
		delete(g.runs, l.queue.run)
	}
}

// cutBatch removes as many events from the queue as one request may carry, at least one.
func (q *runQueue) cutBatch() []item {
	n, bytes := 1, q.items[0].bytes
	for n < len(q.items) && n < maxRequestEvents && bytes+q.items[n].bytes <= maxRequestBytes {
		bytes += q.items[n].bytes
		n++
	}
	batch := q.items[:n:n]
	q.items = q.items[n:]
	return batch
}
