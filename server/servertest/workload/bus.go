package workload

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
	"runlog/server/servertest/workload/bus"
	"runlog/server/subscriptions/delivery"
)

const (
	// busRuns is how many runs events are appended to at a time; every busRunLives others.
	busRuns     = 4
	busRunLives = 10 * time.Second
)

// Bus starts the clients of the event bus, and one that appends events for them, until ctx ends:
// BUS-3, BUS-4 and BUS-6. The connections of host carry every right. The caller must call wait, and
// DrainBus once all faults have ended.
func (c *Clients) Bus(ctx context.Context, host string) (wait func(), err error) {
	b, err := c.openBus(host)
	if err != nil {
		return nil, err
	}
	w, err := c.newGuest(host)
	if err != nil {
		b.Close()
		return nil, err
	}
	w.hired = ctx
	running := start(func() { b.Run(ctx) })
	appending := start(func() {
		defer w.close()
		for ; ctx.Err() == nil; pause(ctx, time.Duration(w.rng.ExpFloat64()*float64(2*c.opts.Think))) {
			w.appendForBus(ctx)
		}
	})
	return func() {
		appending()
		running()
	}, nil
}

// openBus connects the clients of the bus, unless Prepare has done so.
func (c *Clients) openBus(host string) (*bus.Bus, error) {
	if b := c.bus.Load(); b != nil {
		return b, nil
	}
	b, err := bus.New(bus.Options{
		Seed: c.opts.Seed, Nodes: len(c.opts.Nodes), Recorder: c.recorder, Think: c.opts.Think, Patience: c.opts.Patience, Sinks: c.opts.Sinks,
		Dial: func(node int) (*grpc.ClientConn, error) { return c.opts.Dial(host, node) },
		Out:  func(e history.Place) { c.handedOut(fmt.Sprintf("runSeq %d of %s", e.RunSeq, e.Run)) },
	})
	if err == nil {
		c.bus.Store(b)
	}
	return b, err
}

// appendForBus appends some events, most of which subscriptions want.
func (w *worker) appendForBus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.patience())
	defer cancel()
	number := int(time.Since(w.clients.began)/busRunLives)*busRuns + w.rng.IntN(busRuns)
	run := "bus-" + strconv.Itoa(number)
	req, a := &runlogv1.AppendEventsRequest{RunId: run}, history.Append{Run: run}
	types := append(bus.Types(), "BusIgnored")
	for range 1 + w.rng.IntN(3) {
		e := w.clients.envelope(run, w.rng)
		e.EventType, e.TenantId = types[w.rng.IntN(len(types))], bus.Tenant
		w.clients.addSent(run, e)
		req.Events, a.Events = append(req.Events, e), append(a.Events, asSent(e))
	}
	node := w.rng.IntN(len(w.conns))
	op, ticket := w.call(node, history.Op{Appends: []history.Append{a}})
	resp, err := w.events(node).AppendEvents(ctx, req)
	w.answered(&op.Appends[0], resp.GetResults(), resp.GetLastSeq(), err)
	w.clients.recorder.Return(ticket, op)
}

// DrainBus has everything delivered that is due to subscriptions, and closes the clients of the
// bus. Their work must have ended, and all faults.
func (c *Clients) DrainBus(ctx context.Context) error {
	b := c.bus.Load()
	if b == nil {
		return nil
	}
	defer b.Close()
	return b.Drain(ctx)
}

// OpenSink opens the sink of a subscription, for a node that can be cut off from it.
func (c *Clients) OpenSink(reachable func() bool) delivery.Sink {
	return c.bus.Load().OpenSink(reachable)
}

// Interrupted records that the leader changes, or may have ended.
func (c *Clients) Interrupted() {
	c.changes.Add(1)
	c.recorder.Act(history.Act{Kind: history.Interrupted}, c.recorder.Now())
}

// asking is the time of a call.
type asking struct {
	from, to time.Time
	// term counts the changes of the leader until from; -1: there was one until to.
	term int64
}

// now begins a call.
func (c *Clients) now() asking { return asking{from: time.Now(), term: c.changes.Load()} }

// since ends a call.
func (c *Clients) since(a asking) asking {
	if a.to = time.Now(); a.term != c.changes.Load() {
		a.term = -1
	}
	return a
}

// sameTerm reports whether one leader has answered two calls.
func (a asking) sameTerm(b asking) bool { return a.term >= 0 && a.term == b.term }

// Parked records that a node makes a dead letter of an event.
func (c *Clients) Parked(subscription, run string, seq uint64) {
	c.recorder.Act(history.Act{Kind: history.Parked, Subscription: subscription, Places: []history.Place{{Run: run, RunSeq: seq}}}, c.recorder.Now())
}
