package plan

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWalkGrows: what a step costs does not grow with the plan. If it did, ten times the steps
// would take a hundred times as long in each round. The processor time of the thread counts, which
// stands still while others have the machine.
func TestWalkGrows(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	spent := func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
			t.Fatal(err)
		}
		return time.Duration(now.Nano())
	}
	plans := [2]*Plan{largePlan(t, 1000), largePlan(t, MaxSteps)}
	best := [2]time.Duration{time.Hour, time.Hour}
	for range 100 {
		for i, p := range plans {
			began := spent()
			walkAll(t, p)
			best[i] = min(best[i], spent()-began)
		}
		if best[1] < 40*best[0] {
			return
		}
	}
	t.Errorf("1,000 steps take %v, 10,000 take %v", best[0], best[1])
}
