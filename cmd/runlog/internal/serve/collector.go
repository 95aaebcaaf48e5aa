package serve

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Go's collector may let the heap grow to a multiple of its live objects. The default of twice
// takes a fifth of the time of an append under load. Five times, always, makes a node with little
// to do twice as large as it need be. So a node lets the heap grow while it allocates much.
const (
	busyPercent = 400
	calmPercent = 100
	// busyRate is the allocation in bytes a second from which on the heap may grow. At this rate,
	// and with a small heap, the collector runs twice a second, which takes about 1 % of a core.
	busyRate = 16 << 20
	// collectorEvery is the time between two samples: a load on a small heap is collected often
	// until the first one. collectorCalm is how many in a row must show little allocation before
	// the heap shrinks and its memory goes back to the system.
	collectorEvery = 250 * time.Millisecond
	collectorCalm  = 80
	// muchFree is so much unused memory, in bytes, that it is worth a collection to return it.
	muchFree = 16 << 20
)

// collector is a governor of the collector's percentage (GOGC).
type collector struct {
	now  int
	calm int // samples in a row with little allocation
}

// look takes a sample, the allocation in bytes a second, and returns the percentage. It rises at
// once and falls after collectorCalm samples.
func (c *collector) look(rate float64) int {
	if rate > busyRate {
		c.now, c.calm = busyPercent, 0
		return c.now
	}
	if c.calm++; c.calm >= collectorCalm {
		c.now = calmPercent
	}
	return c.now
}

// wasteful reports, once in collectorCalm calm samples, whether the process holds much more memory
// than its live objects need. Go would return it only slowly.
func (c *collector) wasteful(free, live uint64) bool {
	return c.calm > 0 && c.calm%collectorCalm == 0 && free > max(muchFree, live)
}

// tuneCollector keeps the process within its memory. A tenth is for what the Go runtime does not
// count: the binary and the kernel's buffers. GOGC and GOMEMLIMIT override it.
func tuneCollector(memory int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(busyPercent) // a node that starts catches up
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory / 10 * 9)
	}
}

// governCollector follows the allocation until the context ends. The environment variable GOGC
// disables it.
func governCollector(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	c := collector{now: busyPercent}
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	ticker := time.NewTicker(collectorEvery)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		before, since := sample[0].Value.Uint64(), last
		metrics.Read(sample)
		last = time.Now()
		was := c.now
		if now := c.look(float64(sample[0].Value.Uint64()-before) / last.Sub(since).Seconds()); now != was {
			debug.SetGCPercent(now)
		}
		if c.wasteful(sample[1].Value.Uint64(), sample[2].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}
