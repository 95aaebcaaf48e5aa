package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"runlog/client"
)

// Handle passes the deliveries of a subscription to f, up to Options.Workers at a time, and those
// of one run one after the other. It acknowledges an event after f has returned nil, and refuses it
// (Nack) after an error; f may also settle the delivery itself, such as with NackAfter.
//
// Handle returns when ctx ends, or the server refuses the consumer for good; see Deliveries. It
// then cancels the context of f, and waits for the calls that are under way. Deliveries that f has
// not got are no failed attempts. It always returns an error.
func Handle(ctx context.Context, c *client.Client, opts Options, f func(context.Context, *Delivery) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &handling{ctx: ctx, f: f, slots: make(chan struct{}, max(1, opts.EnsureDefaults().Workers)), runs: map[string][]*Delivery{}}
	opts.Max = 0
	for d, err := range Deliveries(ctx, c, opts) {
		if err != nil {
			cancel()
			h.lines.Wait() // Their outcomes are sent at the end of the iteration.
			return err
		}
		h.add(d)
	}
	return nil // not reached: the iteration ends with an error
}

// handling is a Handle. A run has at most one event at the server; a run has more here if an event
// comes again while f still has it, or after a change of the leader.
type handling struct {
	ctx   context.Context
	f     func(context.Context, *Delivery) error
	slots chan struct{} // one for each call of f
	lines sync.WaitGroup

	mu   sync.Mutex
	runs map[string][]*Delivery // with deliveries, the one that f has first
}

// add enters a delivery into the line of its run.
func (h *handling) add(d *Delivery) {
	run := d.GetRunId()
	h.mu.Lock()
	defer h.mu.Unlock()
	line := h.runs[run]
	if slices.ContainsFunc(line, func(other *Delivery) bool { return other.ID == d.ID }) {
		d.drop()
		return
	}
	h.runs[run] = append(line, d)
	if len(line) == 0 {
		h.lines.Go(func() { h.work(run, d) })
	}
}

// work handles the deliveries of a run until there are none, or Handle ends.
func (h *handling) work(run string, d *Delivery) {
	for d != nil {
		if !h.begin() {
			h.release(run)
			return
		}
		d = h.call(run, d)
	}
}

// call has f handle a delivery, and returns the next one of its run. If f ends the goroutine, as
// runtime.Goexit does, the attempt has failed, and another goroutine goes on with the run.
func (h *handling) call(run string, d *Delivery) (next *Delivery) {
	err := errEnded
	defer func() {
		<-h.slots
		next = h.done(run)
		if err == nil {
			d.Ack()
		} else {
			d.Nack()
		}
		if errors.Is(err, errEnded) && next != nil {
			h.lines.Go(func() { h.work(run, next) })
		}
	}()
	err = h.f(h.ctx, d)
	return nil
}

// errEnded is the error of a call that has not returned.
var errEnded = errors.New("consumer: the function has ended its goroutine")

// begin waits for a slot; false: Handle ends.
func (h *handling) begin() bool {
	if h.ctx.Err() != nil {
		return false
	}
	select {
	case h.slots <- struct{}{}:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// release gives back the deliveries of a run.
func (h *handling) release(run string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.runs[run] {
		d.release()
	}
	delete(h.runs, run)
}

// done takes a delivery out of the line of its run, and returns the next one, or nil. After that,
// the same event is one that comes again.
func (h *handling) done(run string) *Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := h.runs[run][1:]
	if len(line) == 0 {
		delete(h.runs, run)
		return nil
	}
	h.runs[run] = line
	return line[0]
}
