package sim

import (
	"sync/atomic"
	"time"
)

// clock is a node's clock. It is off by a skew that drifts and jumps.
type clock struct {
	skew  atomic.Int64 // nanoseconds
	drift float64      // seconds a second
	began time.Time
}

func newClock(skew time.Duration, drift float64) *clock {
	c := &clock{drift: drift, began: time.Now()}
	c.skew.Store(int64(skew))
	return c
}

func (c *clock) now() time.Time {
	now := time.Now()
	return now.Add(time.Duration(c.skew.Load()) + time.Duration(c.drift*float64(now.Sub(c.began))))
}

func (c *clock) jump(by time.Duration) { c.skew.Add(int64(by)) }
