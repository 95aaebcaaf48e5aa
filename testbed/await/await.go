// Package await waits in tests that run in real time: with processes, disks or servers of others.
// Everything waits for an event, and nothing has a limit of its own: the limit of a test is that of
// its binary (go test -timeout).
package await

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// margin is left of the binary's time for a failed test to say what it awaited, and for the others.
const margin = 30 * time.Second

// Context returns a context that ends with the test, or shortly before the test binary must.
func Context(t testing.TB) context.Context {
	ctx := t.Context()
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, limited := d.Deadline(); limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, at.Add(-margin), fmt.Errorf("%s: the time of the test is over", t.Name()))
			t.Cleanup(cancel)
		}
	}
	return ctx
}

// Receive returns the next value of a channel.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	ctx := Context(t)
	select {
	case v := <-from:
		return v
	case <-ctx.Done():
		t.Fatalf("still waiting for %s: %v", what, context.Cause(ctx))
		panic("unreachable")
	}
}

// Until waits until a condition holds. It asks at once, and again each time next has returned: next
// waits for a change of what the condition is about.
func Until(t testing.TB, what string, next func(context.Context) error, condition func() bool) {
	t.Helper()
	ctx := Context(t)
	for !condition() {
		if err := next(ctx); err != nil {
			t.Fatalf("still waiting for %s: %v", what, err)
		}
	}
}

// Poll waits until a condition holds of which no event tells: a file of another process, a table of
// the kernel. It is the one place where tests ask again and again in real time. TestClock lists the
// tests that may call it.
func Poll(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	Until(t, what, func(ctx context.Context) error {
		select {
		case <-tick.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, condition)
}

// pause is the time between two questions of Poll.
const pause = 5 * time.Millisecond
