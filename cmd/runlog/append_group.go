package main

import (
	"context"
	"time"
)

const (
	// A request is cut at either bound. The server takes twice the events and four times the bytes.
	maxRequestEvents = 500
	maxRequestBytes  = 1 << 20
	// maxFlying requests, each of another run, are under way at a time: enough for the server to
	// fold them into one write to disk.
	maxFlying = 8
	// maxWaitingBytes of input are held in memory; reading stops while there are more.
	maxWaitingBytes = 16 << 20
)

// grouper turns the input into requests. The events of a run keep their order, because one request
// of a run at a time is under way; those that arrive meanwhile make up the run's next request.
//
// One goroutine runs it and owns all of it; only send runs in others.
type grouper struct {
	send     func(context.Context, []item) outcome
	report   *report
	ticks    <-chan time.Time // redraw the progress bar; nil without one
	runs     map[string]*runQueue
	ready    []*runQueue // runs that can send now, longest waiting first
	waiting  int         // bytes in all queues
	flying   int         // requests under way
	finished chan landed
}

// runQueue holds the events of one run that are not sent yet.
// Invariant: it is in ready exactly when it has items and is not flying.
type runQueue struct {
	run    string
	items  []item
	flying bool
}

// landed is a request that came back.
type landed struct {
	queue *runQueue
	outcome
}

func newGrouper(send func(context.Context, []item) outcome, r *report, ticks <-chan time.Time) *grouper {
	return &grouper{
		send: send, report: r, ticks: ticks,
		runs: make(map[string]*runQueue), finished: make(chan landed, maxFlying),
	}
}

// pump stores everything that comes from in. After a failure, or when the context ends, it sends
// nothing more, waits for what is under way and returns the first failure.
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

// accept sorts a chunk into the queues.
func (g *grouper) accept(c chunk) {
	for _, it := range c.items {
		run := it.event.GetRunId()
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
}

// launch sends the first events of the runs that waited longest.
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

// land takes an answer and lets the run send again.
func (g *grouper) land(l landed) {
	g.flying--
	l.queue.flying = false
	g.report.stored(l.outcome)
	if len(l.queue.items) > 0 {
		g.ready = append(g.ready, l.queue)
	} else {
		delete(g.runs, l.queue.run)
	}
}

// cutBatch takes as many events off the queue as one request may carry, at least one.
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
