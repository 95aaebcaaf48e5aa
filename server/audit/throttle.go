package audit

import (
	"context"
	"runtime"
	"time"

	"runlog/storage"
)

const (
	// restShare is how many times as long as it has worked a task rests that can wait, while
	// appends come.
	restShare = 9
	// quietAfter the last append a task goes on without rests.
	quietAfter = 100 * time.Millisecond
)

// throttle limits the processor time of work that can wait, such as an export, so that appends do
// not slow down: while appends come, it takes a small share of a processor. Otherwise it yields at
// every step, because Go's scheduler would take the processor away after 10 ms only.
type throttle struct {
	seen  storage.Position // that was applied at the last step
	noted time.Time        // when there was more than at the step before
}

// rest is called after each step, with the time that it took; steps take well below a millisecond.
func (p *throttle) rest(ctx context.Context, node Node, worked time.Duration) {
	now := node.Store().Applied()
	if at := now.Position(); at != p.seen || node.Busy() {
		p.seen, p.noted = at, time.Now()
	}
	if time.Since(p.noted) > quietAfter {
		runtime.Gosched()
		return
	}
	select {
	case <-time.After(restShare * worked):
	case <-ctx.Done():
	}
}
