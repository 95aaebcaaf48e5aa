package client

import (
	"context"
	"slices"
	"sync"

	"runlog/client/internal/fifo"
	"runlog/client/internal/wire"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// A message gets no further calls beyond so many events, the most of one request (APP-3), or so
	// many bytes.
	maxMessageEvents = 1000
	maxMessageBytes  = 256 << 10
)

// pending is an append without an outcome.
type pending struct {
	run    string
	wire   wire.Request
	room   int64 // that it holds
	events int
	fence  uint64
	fenced bool

	// Guarded by the queue's mutex until done.
	prev, next *pending // of its line
	sent       bool     // in the message in flight; else it waits
	left       bool     // the caller has gone, with an unknown outcome
	alone      bool     // it has a condition, or a message with others was refused
	unknown    bool     // a try may have stored it
	tries      int      // that failed
	last       *Error   // of the last try
	lasting    []string // the names of the failures that have lasted

	done    chan struct{} // gets one message when res and failure are set
	res     Result
	failure *Error
}

func (q *queue) newPending(req *runlogv1.AppendEventsRequest, encoded wire.Request, size int) *pending {
	c, ok := q.unusedPending.Get().(*pending)
	if !ok {
		c = &pending{done: make(chan struct{}, 1)}
	}
	c.run, c.wire, c.room, c.events = req.GetRunId(), encoded, int64(size), len(req.GetEvents())
	c.fence, c.fenced, c.alone = req.GetFence(), req.Fence != nil, encoded.Alone()
	return c
}

// free keeps c for another append. Nothing else may use it, and nothing may be in done.
func (q *queue) free(c *pending) {
	*c = pending{done: c.done}
	q.unusedPending.Put(c)
}

// joins reports whether c may be in the message of first, behind it.
func (c *pending) joins(first *pending) bool {
	return !c.alone && !first.alone && c.fenced == first.fenced && c.fence == first.fence
}

// line has the appends of one run, in order: those of the message in flight, and those that wait.
type line struct {
	run         string
	first, last *pending
	sent        int // appends of the message in flight, from first on
	events      int // in them
	bytes       int // of the message
	// busy: it is in ready, its message is in flight, or it waits for the next try.
	busy bool
}

func (l *line) remove(c *pending) {
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}

// queue has the appends without an outcome, in a line for each run.
type queue struct {
	mu      sync.Mutex
	changed *sync.Cond // something is ready, or a lane must end
	lines   map[string]*line
	ready   fifo.Queue[*line] // with appends that wait, and none in flight
	unused  []*line           // for runs to come
	closed  bool              // to new appends
	ended   bool
	under   int           // appends without an outcome
	idle    chan struct{} // closed when the queue is closed and under is 0

	unusedPending sync.Pool
}

func (q *queue) init() {
	q.changed = sync.NewCond(&q.mu)
	q.lines = make(map[string]*line)
	q.idle = make(chan struct{})
}

// add puts an append at the end of its line. It is false if the queue is closed.
func (q *queue) add(c *pending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	l := q.lines[c.run]
	if l == nil {
		l = q.newLine(c.run)
	}
	if c.prev = l.last; c.prev == nil {
		l.first = c
	} else {
		c.prev.next = c
	}
	l.last = c
	q.under++
	if !l.busy {
		q.makeReady(l)
	}
	return true
}

func (q *queue) newLine(run string) *line {
	var l *line
	if n := len(q.unused); n > 0 {
		l, q.unused = q.unused[n-1], q.unused[:n-1]
	} else {
		l = &line{}
	}
	l.run = run
	q.lines[run] = l
	return l
}

func (q *queue) makeReady(l *line) {
	l.busy = true
	q.ready.Push(l)
	q.changed.Broadcast()
}

// rest is for a line whose message has an outcome: its next appends are ready, or it has none.
func (q *queue) rest(l *line) {
	if l.first != nil {
		q.makeReady(l)
		return
	}
	delete(q.lines, l.run)
	*l = line{}
	if len(q.unused) < maxMessageEvents {
		q.unused = append(q.unused, l)
	}
}

// take returns the next line with appends that wait, of which it has chosen those of the next
// message, or nil.
func (q *queue) take() *line {
	for q.ready.Len() > 0 {
		l := q.ready.Pop()
		if l.first == nil { // all callers have left
			q.rest(l)
			continue
		}
		size := 0
		for c := l.first; c != nil; c = c.next {
			size += c.wire.Len()
			if c != l.first && (l.events+c.events > maxMessageEvents || size > maxMessageBytes || !c.joins(l.first)) {
				break
			}
			c.sent = true
			l.sent, l.events = l.sent+1, l.events+c.events
		}
		return l
	}
	return nil
}

// message returns the wire form of the message in flight.
func (l *line) message() wire.Message {
	if l.sent == 1 {
		return l.first.wire.Message()
	}
	size := 0
	for c, n := l.first, l.sent; n > 0; c, n = c.next, n-1 {
		size += c.wire.Len()
	}
	message := l.first.wire.Begin(size)
	for c, n := l.first.next, l.sent; n > 1; c, n = c.next, n-1 {
		message = message.Add(c.wire)
	}
	return message
}

// settled ends the message in flight of a line: outcome decides each of its appends, in order. It
// returns false for one that is to be tried again.
func (q *queue) settled(l *line, outcome func(*pending) bool) (again bool) {
	c, n := l.first, l.sent
	l.sent, l.events = 0, 0
	for ; n > 0; n-- {
		next := c.next
		c.sent = false
		if outcome(c) {
			l.remove(c)
			q.leave(c)
		} else {
			again = true
		}
		c = next
	}
	return again
}

// leave tells the caller of an append that has left its line.
func (q *queue) leave(c *pending) {
	if !c.left {
		c.done <- struct{}{}
	}
	if q.under--; q.under == 0 && q.closed {
		close(q.idle)
	}
}

// abandon ends an append whose context has ended, and returns its failure; nil if it has an outcome
// already, which is in done.
func (a *Appender) abandon(ctx context.Context, c *pending) *Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lines[c.run]
	switch {
	case c.res.Events != nil || c.failure != nil:
		return nil
	case c.sent:
		c.left = true // its room is free when the message has an outcome
		e := unsent(ctx)
		e.settle(true, c.last)
		return e
	}
	l.remove(c)
	c.left = true
	a.release(c)
	a.leave(c)
	e := unsent(ctx)
	if c.last != nil && !c.unknown {
		last := *c.last // others have the same
		last.causes = append(slices.Clip(last.causes), ctx.Err())
		e = &last
	}
	e.settle(c.unknown, c.last)
	return e
}

// refuse closes the queue to new appends. The channel is closed when those under way have ended.
func (q *queue) refuse() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		if q.under == 0 {
			close(q.idle)
		}
	}
	return q.idle
}

// fail ends every append that waits, and the lanes.
func (a *Appender) fail(e *Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for _, l := range a.lines {
		c := l.first
		for range l.sent {
			c = c.next
		}
		for c != nil {
			next := c.next
			a.fails(c, e)
			l.remove(c)
			a.leave(c)
			c = next
		}
	}
	a.changed.Broadcast()
}

// fails sets the failure of an append, which may be OUTCOME_UNKNOWN because of an earlier try.
func (a *Appender) fails(c *pending, e *Error) bool {
	failure := *e // others have the same
	failure.settle(c.unknown, nil)
	c.failure = &failure
	a.release(c)
	return true
}
