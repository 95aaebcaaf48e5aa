package main

import (
	"context"
	"os"
	"runtime"
	"time"
)

// With little to do, every hand-over between goroutines wakes a thread that finds nothing and
// sleeps again: on two cores that client and node share, that is a fifth of the time of an append
// and a quarter of the processor's. So a node that needs no more than half of the cores uses half
// of them.
const (
	procsEvery = 100 * time.Millisecond // how often the load is looked at
	// looks in a row that must show little load before cores are given up
	procsCalm = 10
)

// procs decides how many cores Go code may use: low or high.
type procs struct {
	low, high int
	now       int
	calm      int // looks in a row
}

// look takes in how many cores the process kept busy since the last look, and returns how many it
// may use from now on. More are there at once; fewer after a while. The limits overlap: with more
// cores the same work keeps more busy.
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

// governProcs follows the load until the context ends. An operator who sets GOMAXPROCS knows
// better.
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
