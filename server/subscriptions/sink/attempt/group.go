package attempt

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errLate is the cause of a context that has reached the timeout of its attempt.
var errLate = errors.New("sink: late")

// Options of a Group. All are required.
type Options struct {
	// Timeout bounds an attempt.
	Timeout time.Duration
	// Late makes the error of an attempt that has reached the timeout.
	Late func() error
}

// Group runs the attempts of one sink. Its methods may be called by many goroutines.
type Group struct {
	opts   Options
	ctx    context.Context // until Close
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		closed bool
	}
	running sync.WaitGroup // Add only while mu is held and closed is false
	idle    chan attempt   // goroutines that wait for an attempt receive from it
}

// NewGroup makes a group. It must be closed.
func NewGroup(opts Options) *Group {
	g := &Group{opts: opts, idle: make(chan attempt)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Context ends when the group is closed.
func (g *Group) Context() context.Context { return g.ctx }

// Go makes one attempt on another goroutine, and calls done with its outcome exactly once. Done is
// called at the latest when ctx ends, the timeout is reached, or the group is closed, even if try
// does not return by then. Go never calls done itself, so a caller may hold a lock.
func (g *Group) Go(ctx context.Context, try func(context.Context) error, done func(error)) {
	a := attempt{ctx, try, done}
	select {
	case g.idle <- a:
		return
	default:
	}
	if !g.begin() {
		go done(ErrClosed)
		return
	}
	go g.work(a)
}

// attempt is a call of Go.
type attempt struct {
	ctx  context.Context
	try  func(context.Context) error
	done func(error)
}

func (g *Group) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed {
		return false
	}
	g.running.Add(1)
	return true
}

// patience is how long a goroutine waits for another attempt. A new one would have to grow its
// stack first, which takes a sixth of the time of an attempt (measured with NATS).
const patience = 10 * time.Second

// work makes attempts until there was none for a while.
func (g *Group) work(a attempt) {
	defer g.running.Done()
	wait := time.NewTimer(patience)
	defer wait.Stop()
	for {
		g.make(a)
		a = attempt{} // It may hold an event.
		wait.Reset(patience)
		select {
		case a = <-g.idle:
		case <-wait.C:
			return
		case <-g.ctx.Done():
			return
		}
	}
}

// make makes one attempt.
func (g *Group) make(a attempt) {
	ctx, cancel := context.WithTimeoutCause(a.ctx, g.opts.Timeout, errLate)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	late := make(chan struct{})
	answered := context.AfterFunc(ctx, func() {
		defer close(late)
		a.done(g.outcome(ctx, ctx.Err()))
	})
	err := a.try(ctx)
	if answered() {
		a.done(g.outcome(ctx, err))
	} else {
		<-late
	}
}

// outcome replaces the many errors with which a try may end after its context, or after Close.
func (g *Group) outcome(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case g.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() == nil:
		return err
	case errors.Is(context.Cause(ctx), errLate):
		return g.opts.Late()
	default:
		return context.Cause(ctx)
	}
}

// Close ends the attempts that are under way, and waits for their goroutines and for done.
func (g *Group) Close() {
	g.mu.Lock()
	g.mu.closed = true
	g.mu.Unlock()
	g.cancel()
	g.running.Wait()
}
