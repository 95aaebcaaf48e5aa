package audit

import (
	"context"
	"runtime"
	"time"

	"runlog/storage"
)

const (
	// restShare is the ratio of rest to work while appends come.
	restShare = 9
	// quietAfter is the time after the last append from which work does not rest any more.
	quietAfter = 100 * time.Millisecond
)

// throttle limits the processor time of work that can wait, such as an export, so that appends do
// not slow down. While appends come, the work takes a small share of a processor. Otherwise it
// yields at every step, because Go's scheduler preempts it only after 10 ms.
type throttle struct {
	seen  storage.Position // applied at the last step
	noted time.Time        // when seen last rose
}

// rest is called after each step with the time that the step took, which is well below a
// millisecond.
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
