package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"runlog/bench/target"
)

const (
	// fillCallers and fillBatch store the events that are consumed. Batches are small, so that the
	// next 10,000 events, which a subscription has at hand, are of some 500 runs: each run has one
	// event under way.
	fillCallers = 64
	fillBatch   = 20
)

// Consuming is a consumer of everything that is stored. One goroutine uses it.
type Consuming struct {
	session  *Session
	to       target.Target
	from     target.Subscriber
	runs     int
	stored   int
	consumer target.Consumer
	seen     int
}

// NewConsuming returns a consumer of about so many events, which Prepare stores. About so many runs
// lie side by side in the log.
func NewConsuming(s *Session, to target.Target, from target.Subscriber, runs, events int) *Consuming {
	return &Consuming{session: s, to: to, from: from, runs: runs, stored: events}
}

// Prepare stores the events.
func (c *Consuming) Prepare(ctx context.Context) error {
	var stored atomic.Int64
	parts := Shares(c.runs, min(c.runs, fillCallers))
	errs := make([]error, len(parts))
	var callers sync.WaitGroup
	first := 0
	for i, part := range parts {
		var runs []Caller
		for n := range part {
			runs = append(runs, AppendFrom(c.to, NewHistories(c.session, fillBatch, first+n)))
		}
		first += part
		callers.Go(func() {
			for turn := 0; errs[i] == nil && stored.Load() < int64(c.stored); turn++ {
				var n int
				n, errs[i] = runs[turn%len(runs)](ctx)
				stored.Add(int64(n))
			}
		})
	}
	callers.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.stored = int(stored.Load())
	return c.begin(ctx)
}

func (c *Consuming) begin(ctx context.Context) (err error) {
	c.seen = 0
	c.consumer, err = c.from.Subscribe(ctx)
	return err
}

// Next waits for the next events.
func (c *Consuming) Next(ctx context.Context) (int, error) {
	if c.seen == c.stored {
		if err := c.Close(); err != nil {
			return 0, err
		}
		if err := c.begin(ctx); err != nil {
			return 0, err
		}
	}
	n, err := c.consumer.Next(ctx)
	if c.seen += n; err == nil && c.seen > c.stored {
		err = target.WrongAnswer("TOO_MANY", "%d events consumed, %d are stored", c.seen, c.stored)
	}
	return n, err
}

// Close ends the consumer.
func (c *Consuming) Close() error {
	if c.consumer == nil {
		return nil
	}
	closing := c.consumer
	c.consumer = nil
	return closing.Close()
}
