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
}

// NewGroup makes a group. It must be closed.
func NewGroup(opts Options) *Group {
	g := &Group{opts: opts}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Context ends when the group is closed.
func (g *Group) Context() context.Context { return g.ctx }

// Go makes one attempt on a goroutine of its own, and calls done with its outcome exactly once.
// Done is called at the latest when ctx ends, the timeout is reached, or the group is closed, even
// if try does not return by then. Go never calls done itself, so a caller may hold a lock.
func (g *Group) Go(ctx context.Context, try func(context.Context) error, done func(error)) {
	if !g.begin() {
		go done(ErrClosed)
		return
	}
	go func() {
		defer g.running.Done()
		ctx, cancel := context.WithTimeoutCause(ctx, g.opts.Timeout, errLate)
		defer cancel()
		defer context.AfterFunc(g.ctx, cancel)()
		result := make(chan error, 1)
		g.running.Add(1)
		go func() {
			defer g.running.Done()
			result <- try(ctx)
		}()
		select {
		case err := <-result:
			done(g.outcome(ctx, err))
		case <-ctx.Done():
			done(g.outcome(ctx, ctx.Err()))
		}
	}()
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
