package serve

import (
	"context"
	"os"
	"runtime"
	"time"
)

// Under little load, every switch between goroutines wakes a thread that finds no work and sleeps
// again. On two cores that client and node share, this takes a fifth of the time of an append and a
// quarter of the processor time. A node that needs at most half of the cores therefore uses half of
// them.
const (
	procsEvery = 100 * time.Millisecond // between two samples of the load
	// procsCalm is how many samples in a row must show little load before the process uses fewer
	// cores.
	procsCalm = 10
)

// procs is a governor of GOMAXPROCS: low or high cores.
type procs struct {
	low, high int
	now       int
	calm      int // samples in a row with little load
}

// look takes a sample, how many cores were busy since the last one, and returns how many the
// process may use. The number rises at once and falls after procsCalm samples. The limits overlap,
// because the same work keeps more cores busy if there are more.
func (p *procs) look(busy float64) int {
	low := float64(p.low)
	switch {
	case p.now == p.low && busy > 0.8*low:
		p.now, p.calm = p.high, 0
	case p.now == p.high && busy < low:
		if p.calm++; p.calm == procsCalm {
			p.now = p.low
		}
	default:
		p.calm = 0
	}
	return p.now
}

// governProcs follows the load until the context ends. The environment variable GOMAXPROCS disables
// it.
func governProcs(ctx context.Context) {
	high := runtime.GOMAXPROCS(0)
	used, ok := processorTime()
	if high == 1 || !ok || os.Getenv("GOMAXPROCS") != "" {
		return
	}
	p := procs{low: high / 2, high: high, now: high}
	ticker := time.NewTicker(procsEvery)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			runtime.GOMAXPROCS(high)
			return
		}
		before, since := used, last
		used, _ = processorTime()
		last = time.Now()
		was := p.now
		if now := p.look(float64(used-before) / float64(last.Sub(since))); now != was {
			runtime.GOMAXPROCS(now)
		}
	}
}
