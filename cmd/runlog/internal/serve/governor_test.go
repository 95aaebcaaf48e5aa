package serve

import (
	"context"
	"os"
	"runtime"
	"testing"

	"runlog/testbed/bubble"
)

// TestProcsFollowTheLoad: cores come at once with the load and go after it has been little for a
// while; a load near the limit does not make them come and go.
func TestProcsFollowTheLoad(t *testing.T) {
	p := procs{low: 2, high: 4, now: 4}
	looks := func(n int, busy float64, want int) {
		t.Helper()
		for range n {
			p.look(busy)
		}
		if p.now != want {
			t.Fatalf("%d cores at %.2f busy, want %d", p.now, busy, want)
		}
	}
	looks(procsCalm-1, 0.1, 4)
	looks(1, 0.1, 2)
	looks(100, 1.5, 2)
	looks(1, 1.7, 4)
	looks(procsCalm-1, 1.9, 4)
	looks(1, 2.1, 4) // not calm: counting begins again
	looks(procsCalm-1, 1.9, 4)
	looks(1, 1.9, 2)
	looks(1, 4, 4)
}

// TestGovernorIsBounded: it uses half of the cores when nothing is to do, and gives back what it
// took.
func TestGovernorIsBounded(t *testing.T) {
	high := runtime.GOMAXPROCS(0)
	if _, ok := processorTime(); !ok || high == 1 || os.Getenv("GOMAXPROCS") != "" {
		t.Skip("nothing to govern here")
	}
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			governProcs(ctx)
		}()
		bubble.Until(t, "half of the cores", func() bool { return runtime.GOMAXPROCS(0) == high/2 })
		cancel()
		<-done
	})
	if got := runtime.GOMAXPROCS(0); got != high {
		t.Errorf("%d cores afterwards, had %d", got, high)
	}
}
