package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"runlog/bench/target"
)

const (
	// fillCallers and fillBatch store the events that are consumed.
	fillCallers = 16
	fillBatch   = 100
)

// Consuming is a consumer of everything that is stored. One goroutine uses it.
type Consuming struct {
	session  *Session
	to       target.Target
	from     target.Subscriber
	stored   int
	consumer target.Consumer
	seen     int
}

// NewConsuming returns a consumer of about so many events, which Prepare stores.
func NewConsuming(s *Session, to target.Target, from target.Subscriber, events int) *Consuming {
	return &Consuming{session: s, to: to, from: from, stored: events}
}

// Prepare stores the events.
func (c *Consuming) Prepare(ctx context.Context) error {
	var stored atomic.Int64
	errs := make([]error, fillCallers)
	var callers sync.WaitGroup
	for i := range fillCallers {
		callers.Go(func() {
			source := NewHistories(c.session, fillBatch, i)
			for errs[i] == nil && stored.Load() < int64(c.stored) {
				var n int
				n, errs[i] = AppendFrom(c.to, source)(ctx)
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
