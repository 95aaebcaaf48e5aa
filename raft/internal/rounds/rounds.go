// Package rounds lets callers share rounds of a call, such as the confirmation of a leader (D8).
package rounds

import (
	"context"
	"sync"
)

// Rounds are rounds of one call. A caller joins the round that has not begun yet, because one under
// way may have begun before the caller's read was asked for.
type Rounds struct {
	// Call is made once a round, by one goroutine at a time.
	Call func() error

	mu      sync.Mutex
	running bool
	next    *round
}

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

// run holds rounds until no caller waits for one.
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
