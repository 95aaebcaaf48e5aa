package workload

import (
	"context"
	"fmt"
)

const (
	preparedRuns   = 6
	preparedEvents = 20
)

// Prepare requests runs, makes the subscriptions of the bus, and appends events for them, in a
// cluster that is going to be backed up: a copy of it has something to start and to deliver. No
// client leases or consumes yet.
func (c *Clients) Prepare(ctx context.Context, host string) error {
	w, err := c.newGuest(host)
	if err != nil {
		return err
	}
	defer w.close()
	b, err := c.openBus(host)
	if err != nil {
		return err
	}
	s := &starter{worker: w, starts: &c.starts}
	s.putQueue(ctx)
	for n := range preparedRuns {
		s.requestOne(ctx, n, "")
	}
	for range preparedEvents {
		w.appendForBus(ctx)
	}
	// At last: sinks are tried at once.
	b.Create(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("workload: cannot prepare a cluster: %w", context.Cause(ctx))
	}
	return nil
}

// Hold says that the cluster is held: until Release, no node may hand out a lease or an event.
func (c *Clients) Hold() { c.held.Store(true) }

// Release says that the cluster is about to be released.
func (c *Clients) Release() { c.held.Store(false) }

// handedOut requires that the cluster is not held when a node has handed something out (BUS-3,
// QUE-6).
func (c *Clients) handedOut(what string) {
	if c.held.Load() {
		c.opts.Broken("hold: %s was handed out by a cluster that is held", what)
	}
}
