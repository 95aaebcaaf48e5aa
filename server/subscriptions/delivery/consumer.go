package delivery

import (
	"context"
	"errors"
	"slices"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage/machine/subscription"
)

// ErrNotFound means that there is no such subscription.
var ErrNotFound = errors.New("delivery: there is no such subscription")

// ErrNotPull means that the events of the subscription go to a sink.
var ErrNotPull = errors.New("delivery: the subscription is not a pull subscription")

// ErrLeft means that the consumer was given nothing, because it leaves.
var ErrLeft = errors.New("delivery: the consumer leaves")

// Consumer takes events of a pull subscription. One goroutine calls Take; others may call the rest.
type Consumer struct {
	s    *subscriber
	wake chan struct{} // room for one

	left bool // it gets nothing more; the owner of s has it
}

// Consume adds a consumer to a subscription. The caller closes it.
func (d *Dispatcher) Consume(ctx context.Context, name subscription.Name) (*Consumer, error) {
	t, err := d.await(ctx)
	if err != nil {
		return nil, err
	}
	s := t.find(name)
	if s == nil {
		return nil, ErrNotFound
	}
	c := &Consumer{s: s, wake: make(chan struct{}, 1)}
	s.call(func() {
		switch {
		case s.closed:
			err = ErrNotLeader
		case !s.pull():
			err = ErrNotPull
		default:
			s.consumers[c] = struct{}{}
		}
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Consumer) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Take returns at most n events. If there is none, it waits for one, and returns none when alive
// gets a value. Its error is the cause of the context, or the reason for which the deliveries have
// ended.
func (c *Consumer) Take(ctx context.Context, n int, alive <-chan time.Time) ([]Delivery, error) {
	for {
		var list []Delivery
		var err error
		c.s.call(func() { list, err = c.s.take(c, n) })
		if len(list) > 0 || err != nil {
			return list, err
		}
		select {
		case <-c.wake:
		case <-alive:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *subscriber) take(c *Consumer, n int) ([]Delivery, error) {
	switch {
	case s.closed:
		return nil, s.cause
	case !s.pull():
		return nil, ErrNotPull
	case c.left:
		return nil, ErrLeft
	}
	if s.overdue() || s.unloaded {
		return nil, nil // The settlement wakes the consumers.
	}
	taken, err := s.window.Take(s.term.now(), n)
	if len(taken) > 0 {
		err = nil // The next call has it, if it lasts. These are under way.
	}
	list := make([]Delivery, len(taken))
	for i := range taken {
		list[i] = Delivery{taken[i], s.sought}
		s.receivers[list[i].Ref().Place] = c
	}
	if s.window.Ready() {
		s.nudgeOther(c)
	}
	return list, err
}

// nudgeAll has all consumers look for events.
func (s *subscriber) nudgeAll() {
	for c := range s.consumers {
		c.nudge()
	}
}

// nudgeOther wakes another consumer for what is left.
func (s *subscriber) nudgeOther(but *Consumer) {
	for c := range s.consumers {
		if c != but {
			c.nudge()
			return
		}
	}
}

// Ack settles events, also those that another consumer or node has handed out, and returns how many
// were owed. Deliveries from before a seek do not count: the seek asks for their events again.
func (c *Consumer) Ack(list []Ref) (n int) {
	c.s.call(func() { n = c.s.ack(list) })
	return n
}

// Nack has events delivered again: after a delay, or if that is negative after a random time. It
// returns how many. Events that another consumer has by now do not count: the call came too late.
func (c *Consumer) Nack(list []Ref, delay time.Duration) (n int) {
	s := c.s
	s.call(func() {
		mine := slices.DeleteFunc(s.places(list), func(p window.Place) bool {
			receiver := s.receivers[p]
			return receiver != nil && receiver != c
		})
		n = s.nack(mine, "the consumer refused the delivery", delay)
	})
	return n
}

// Return gives events back that did not reach the consumer: it is no failed attempt.
func (c *Consumer) Return(list []Ref) { c.s.call(func() { c.giveBack(list) }) }

// Unused is Return for a consumer that leaves: from now on Take returns ErrLeft.
func (c *Consumer) Unused(list []Ref) {
	c.s.call(func() {
		c.left = true
		delete(c.s.consumers, c)
		c.nudge()
		c.giveBack(list)
	})
}

// Close ends the consumer. Its deliveries that it has neither acknowledged nor refused have failed.
func (c *Consumer) Close() {
	c.s.call(func() { c.s.nack(c.leave(), "the consumer ended without an acknowledgement", -1) })
}

// Leave ends the consumer. Its deliveries may still be acknowledged, until their deadlines.
func (c *Consumer) Leave() { c.s.call(func() { c.leave() }) }

// What follows is called by the owner of the subscription.

func (c *Consumer) giveBack(list []Ref) {
	s := c.s
	if s.closed {
		return
	}
	for _, p := range s.places(list) {
		if s.receivers[p] == c {
			delete(s.receivers, p)
			s.window.Return(p)
		}
	}
	s.nudged = true
}

// leave removes the consumer, and returns the events that it still has.
func (c *Consumer) leave() (list []window.Place) {
	s := c.s
	for p, receiver := range s.receivers {
		if receiver == c {
			list = append(list, p)
			delete(s.receivers, p)
		}
	}
	delete(s.consumers, c)
	if s.window.Ready() {
		s.nudgeOther(c)
	}
	return list
}

func (s *subscriber) ack(list []Ref) (n int) {
	if s.closed {
		return 0
	}
	for _, p := range s.places(list) {
		delete(s.receivers, p)
		if s.window.Ack(p) {
			n++
		}
	}
	if n > 0 {
		s.lastError = ""
		s.dirty()
		s.nudged = true
	}
	return n
}

func (s *subscriber) nack(list []window.Place, cause string, delay time.Duration) (n int) {
	if s.closed {
		return 0
	}
	for _, p := range list {
		delete(s.receivers, p)
		if s.window.Fail(p, cause, false, delay, s.term.now()) {
			n++
		}
	}
	if n > 0 {
		s.noteError(errors.New(cause))
		s.dirty()
		s.nudged = true
	}
	return n
}
