package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"runlog/bench/load"
	"runlog/bench/target"
)

const (
	// fillCallers and fillBatch store the events that are consumed.
	fillCallers = 16
	fillBatch   = 100
)

// openConsume prepares consume: stored events are read by one consumer, which acknowledges them. One
// that has read all begins again.
func openConsume(b *bed) (*work, error) {
	subscriber, ok := b.target.(target.Subscriber)
	if !ok {
		return nil, errNoSubscriptions
	}
	c := &consuming{b: b, target: subscriber}
	w := &work{prepare: c.prepare, release: c.close}
	w.lanes = append(w.lanes, load.Caller(c.next).Lane())
	return w, nil
}

// consuming is a consumer of everything that is stored.
type consuming struct {
	b        *bed
	target   target.Subscriber
	stored   int
	consumer target.Consumer
	seen     int
}

// prepare stores the events.
func (c *consuming) prepare(ctx context.Context) error {
	var stored atomic.Int64
	errs := make([]error, fillCallers)
	var callers sync.WaitGroup
	for i := range fillCallers {
		callers.Go(func() {
			source := load.NewHistories(c.b.session, fillBatch, i)
			for errs[i] == nil && stored.Load() < int64(c.b.w.Stored) {
				var n int
				n, errs[i] = load.AppendFrom(c.b.target, source)(ctx)
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

func (c *consuming) begin(ctx context.Context) (err error) {
	c.seen = 0
	c.consumer, err = c.target.Subscribe(ctx)
	return err
}

// next waits for the next events.
func (c *consuming) next(ctx context.Context) (int, error) {
	if c.seen == c.stored {
		if err := c.close(); err != nil {
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

func (c *consuming) close() error {
	if c.consumer == nil {
		return nil
	}
	closing := c.consumer
	c.consumer = nil
	return closing.Close()
}
