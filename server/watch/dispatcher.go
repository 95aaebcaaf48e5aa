package watch

import (
	"container/list"
	"sync"
	"time"

	"runlog/server/rpc/decode"
)

const (
	// perDelivery is the pause of a dispatcher for each delivery of a batch, and longestRest the
	// longest pause. With many streams, sending takes about a quarter of a core. Changes during the
	// pause are conflated.
	perDelivery = 8 * time.Microsecond
	longestRest = 150 * time.Millisecond
	// restFrom is the smallest batch after which the dispatcher pauses.
	restFrom = 64
	// stuckAfter is how long one delivery may delay the others.
	stuckAfter = 10 * time.Millisecond
	// leaveAfter is how long a stream that ends waits for a delivery in progress.
	leaveAfter = 100 * time.Millisecond
)

// recipient is a stream to which a dispatcher delivers.
type recipient interface {
	// deliver sends new state; or, if there is none and beat is set, a heartbeat. One goroutine at
	// a time calls it.
	deliver(beat bool, shared messages) error
}

// messages are encoded once for all streams that get them in a batch.
type messages map[messageKey]*decode.Prepared

// free lets go of the messages. gRPC keeps those that it has not sent.
func (m messages) free() {
	for _, one := range m {
		one.Free()
	}
	clear(m)
}

// dispatcher sends to many streams from one goroutine, in batches. A stream costs no growing
// goroutine stack, no timer, and no wake-up for each message, and streams of one run share the
// encoded message. Changes between batches are conflated.
//
// If a delivery does not return within stuckAfter, another goroutine takes over the remaining
// batch. The slow stream gets a goroutine of its own for each later delivery.
type dispatcher struct {
	heartbeat time.Duration
	wake      chan struct{} // has room for one: ready is not empty any more
	closing   chan struct{}
	workers   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ready  []*post   // streams with changes, each once
	batch  []*post   // the current batch
	at     int       // next index in batch
	beats  list.List // of *post, ordered by their last delivery
	now    time.Time // of the batch

	turn    uint64 // number of the worker that processes the batch
	current *post  // the stream that it delivers to; nil: none
	handed  uint64 // deliveries so far
	seen    uint64 // value of handed at the last check of watchdog
	// watchdog checks the worker while there is a batch.
	watchdog *time.Timer
}

// post is the entry of a stream in a dispatcher. The dispatcher's mu guards it.
type post struct {
	to     recipient
	failed chan error // has room for one: the error that ended deliveries

	state postState
	again bool          // something changed since the delivery began
	beat  bool          // a heartbeat is due
	slow  bool          // deliveries have a goroutine of their own
	left  bool          // no more deliveries
	last  time.Time     // of the last delivery
	idle  chan struct{} // closed at the end of the delivery; nil: no goroutine waits
	place *list.Element // in beats; nil before the stream was released
}

type postState byte

const (
	postBusy   postState = iota // not released yet, or a delivery is in progress
	postIdle                    // waits for changes
	postQueued                  // in ready or in batch
)

func newDispatcher(heartbeat time.Duration) *dispatcher {
	d := &dispatcher{heartbeat: heartbeat, wake: make(chan struct{}, 1), closing: make(chan struct{})}
	d.watchdog = time.AfterFunc(time.Hour, d.look)
	d.workers.Go(func() { d.work(0) })
	return d
}

// close stops the workers. The streams must have ended.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.watchdog.Stop()
	close(d.closing)
	d.workers.Wait()
}

// join makes the entry of a stream. Deliveries begin after release.
func (d *dispatcher) join(to recipient) *post { return &post{to: to, failed: make(chan error, 1)} }

// release starts deliveries to a stream.
func (d *dispatcher) release(p *post) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.last = time.Now()
	p.place = d.beats.PushBack(p)
	d.freeLocked(p)
}

// news marks a stream that has something to deliver.
func (d *dispatcher) news(p *post) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch p.state {
	case postBusy:
		p.again = true
	case postIdle:
		d.queueLocked(p)
	}
}

func (d *dispatcher) queueLocked(p *post) {
	p.state = postQueued
	d.ready = append(d.ready, p)
	if len(d.ready) == 1 {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// freeLocked ends a delivery.
func (d *dispatcher) freeLocked(p *post) {
	p.state = postIdle
	if p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
	if p.again && !p.left {
		p.again = false
		d.queueLocked(p)
	}
}

// leave ends deliveries to a stream. The end of the stream's call releases a delivery that hangs.
func (d *dispatcher) leave(p *post) {
	d.mu.Lock()
	p.left = true
	if p.place == nil {
		d.mu.Unlock()
		return
	}
	d.beats.Remove(p.place)
	if p.state != postBusy {
		d.mu.Unlock()
		return
	}
	p.idle = make(chan struct{})
	idle := p.idle
	d.mu.Unlock()
	patience := time.NewTimer(leaveAfter)
	defer patience.Stop()
	select {
	case <-idle:
	case <-patience.C:
	}
}

// work delivers until another worker has the turn or the dispatcher is closed.
func (d *dispatcher) work(turn uint64) {
	shared := messages{}
	defer shared.free()
	for {
		p, beat, begins := d.next(turn)
		if p == nil {
			return
		}
		if begins {
			shared.free()
		}
		d.delivered(turn, p, p.to.deliver(beat, shared))
	}
}

// next returns the next stream to deliver to, and whether a batch begins with it; nil at the end of
// the turn.
func (d *dispatcher) next(turn uint64) (p *post, beat, begins bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.closed && d.turn == turn {
		if d.at == len(d.batch) {
			d.awaitLocked()
			begins = true
			continue
		}
		p := d.batch[d.at]
		d.batch[d.at] = nil
		d.at++
		if p.left {
			continue
		}
		beat := p.beat
		p.state, p.beat = postBusy, false
		if p.slow {
			d.workers.Go(func() {
				own := messages{}
				defer own.free()
				d.delivered(turn, p, p.to.deliver(beat, own))
			})
			continue
		}
		d.current = p
		d.handed++
		return p, beat, begins
	}
	return nil, false, false
}

// awaitLocked pauses after a batch and makes the next one from the ready streams. It may be empty.
func (d *dispatcher) awaitLocked() {
	turn, n := d.turn, len(d.batch)
	d.batch, d.at = d.batch[:0], 0
	until := time.Now().Add(d.heartbeat)
	if oldest := d.beats.Front(); oldest != nil {
		until = oldest.Value.(*post).last.Add(d.heartbeat)
	}
	empty := len(d.ready) == 0
	d.mu.Unlock()
	if n >= restFrom {
		d.rest(min(time.Duration(n)*perDelivery, longestRest), nil)
	}
	if empty {
		d.rest(time.Until(until), d.wake)
	}
	d.mu.Lock()
	if d.closed || d.turn != turn {
		return
	}
	d.now = time.Now()
	d.beatLocked()
	d.batch, d.ready = d.ready, d.batch
	if len(d.batch) > 0 {
		d.seen = d.handed
		d.watchdog.Reset(stuckAfter)
	}
}

// rest pauses for a time, or until wake receives.
func (d *dispatcher) rest(long time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-d.closing:
	}
}

// beatLocked queues the streams whose heartbeat is due.
func (d *dispatcher) beatLocked() {
	for {
		e := d.beats.Front()
		if e == nil {
			return
		}
		p := e.Value.(*post)
		if d.now.Sub(p.last) < d.heartbeat {
			return
		}
		p.last = d.now
		d.beats.MoveToBack(e)
		p.beat = true
		if p.state == postIdle {
			d.queueLocked(p)
		}
	}
}

// delivered ends a delivery that a worker made in its turn.
func (d *dispatcher) delivered(turn uint64, p *post, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turn == turn && d.current == p {
		d.current = nil
	}
	if !p.left {
		p.last = d.now
		d.beats.MoveToBack(p.place)
	}
	if err != nil {
		p.left = true
		d.beats.Remove(p.place)
		p.failed <- err
	}
	d.freeLocked(p)
}

// look gives the turn to another worker if the current one hangs.
func (d *dispatcher) look() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.current == nil && d.at == len(d.batch) {
		return
	}
	if d.current != nil && d.handed == d.seen {
		d.current.slow = true
		d.current = nil
		d.turn++
		turn := d.turn
		d.workers.Go(func() { d.work(turn) })
	}
	d.seen = d.handed
	d.watchdog.Reset(stuckAfter)
}
