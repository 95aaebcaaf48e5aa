package serve

import "testing"

// TestCollectorFollowsTheLoad: the heap may grow at once with the load, and shrinks after it has
// been little for a while.
func TestCollectorFollowsTheLoad(t *testing.T) {
	c := collector{now: calmPercent}
	looks := func(n int, rate float64, want int) {
		t.Helper()
		got := c.now
		for range n {
			got = c.look(rate)
		}
		if got != want {
			t.Fatalf("%d samples of %.0f: %d, want %d", n, rate, got, want)
		}
	}
	looks(1, 0, calmPercent)
	looks(1, busyRate+1, busyPercent)
	looks(collectorCalm-1, busyRate, busyPercent)
	looks(1, 0, calmPercent)
	looks(100, busyRate, calmPercent)
	looks(1, 2*busyRate, busyPercent)
	looks(collectorCalm-1, 1, busyPercent)
	looks(1, 2*busyRate, busyPercent) // Counting begins again.
	looks(collectorCalm-1, 1, busyPercent)
	looks(1, 1, calmPercent)
	if !c.wasteful(muchFree+1, 1) || c.wasteful(muchFree, 1) || c.wasteful(2*muchFree, 2*muchFree) {
		t.Error("memory is returned, or kept, that should not be")
	}
	looks(1, 1, calmPercent)
	if c.wasteful(10*muchFree, 1) {
		t.Error("memory is returned at every sample")
	}
}
