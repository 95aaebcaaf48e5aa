// Package rounds lets callers share rounds of a call, such as the confirmation of a leader (D8).
package rounds

import (
	"context"
	"sync"
)

// Rounds are rounds of one call. A caller joins the round that has not begun yet, because one under
// way may have begun before the caller's read was asked for.
//
// At most one round is under way and one is next. Callers that come during a round all join the
// next one. So under load each caller waits for at most two calls, and a call serves all that came
// during the one before.
type Rounds struct {
	// Call is made once a round, by one goroutine at a time. It is set before the first Join.
	Call func() error

	mu      sync.Mutex
	running bool   // run runs; it ends under mu, when no round is next
	next    *round // the one to join; run takes it out right before it calls
}

// round is shared by the callers that have joined it. run sets err, and then closes done.
type round struct {
	done chan struct{}
	err  error
}

// Join waits for the round that begins next, and returns its error.
func (v *Rounds) Join(ctx context.Context) error {
	v.mu.Lock()
	if v.next == nil {
		v.next = &round{done: make(chan struct{})}
	}
	r := v.next
	if !v.running {
		v.running = true
		go v.run()
	}
	v.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run makes the calls of rounds until no caller waits for one.
func (v *Rounds) run() {
	for {
		v.mu.Lock()
		r := v.next
		v.next = nil
		if r == nil {
			v.running = false
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		r.err = v.Call()
		close(r.done)
	}
}
