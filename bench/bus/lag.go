package bus

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

// Lag is one consumer of everything that is stored from its opening on. It measures how long after
// its persistedAt each event arrives.
type Lag struct {
	*drain
	subscription target.Subscription
	latency      report.Histogram
	// events that were persisted from..to are measured, in nanoseconds since 1970
	from, to atomic.Int64
}

// OpenLag makes the subscription and its consumer.
func OpenLag(ctx context.Context, b target.Bus) (*Lag, error) {
	sub, err := b.Deliver(ctx, pullOf("", nowOn()))
	if err != nil {
		return nil, err
	}
	l := &Lag{subscription: sub}
	c, err := sub.Consume(l.told)
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	l.drain = newDrain(c)
	return l, nil
}

// Measure selects the events of a time.
func (l *Lag) Measure(from time.Time, d time.Duration) {
	l.from.Store(from.UnixNano())
	l.to.Store(from.Add(d).UnixNano())
}

func (l *Lag) told(e *runlogv1.EventRecord) {
	now, at := time.Now().UnixNano(), e.GetPersistedAt().AsTime().UnixNano()
	if at >= l.from.Load() && at < l.to.Load() {
		l.latency.Record(time.Duration(max(now-at, 0)))
	}
}

// Await waits until so many events have arrived in all, and returns the lag of those that were
// measured. After grace it is an error that some have not.
func (l *Lag) Await(ctx context.Context, events uint64, grace time.Duration) (*report.LagResult, error) {
	if err := l.await(ctx, events, grace); err != nil {
		return nil, err
	}
	r := &report.LagResult{
		Events: l.latency.Count(), P50: l.latency.Quantile(0.5), P99: l.latency.Quantile(0.99), P999: l.latency.Quantile(0.999),
	}
	r.P50Ms, r.P99Ms, r.P999Ms = report.Milliseconds(r.P50), report.Milliseconds(r.P99), report.Milliseconds(r.P999)
	return r, nil
}

// Close ends the consumer, and deletes the subscription.
func (l *Lag) Close() error { return errors.Join(l.drain.Close(), l.subscription.Close()) }
