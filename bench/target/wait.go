package target

import (
	"context"
	"fmt"
	"time"
)

// Pause returns false when ctx ended it.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// AwaitProjection waits until the projection has everything that is stored, and returns the metrics
// then.
func AwaitProjection(ctx context.Context, o Operator, grace time.Duration) (Metrics, error) {
	return AwaitMetrics(ctx, o, grace, "the projection did not catch up", func(m Metrics) bool { return m[metricBehind] == 0 })
}

// metricsPoll is how often metrics are asked for that are waited for: seldom, because an answer
// takes a node a millisecond.
const metricsPoll = 50 * time.Millisecond

// AwaitMetrics asks for the metrics until ready accepts them, and returns them. If ready accepts
// none within grace, the error says failure. The end of ctx returns the error of ctx.
func AwaitMetrics(ctx context.Context, o Operator, grace time.Duration, failure string, ready func(Metrics) bool) (Metrics, error) {
	for deadline := time.Now().Add(grace); ; {
		m, err := o.Metrics(ctx)
		if err != nil || ready(m) {
			return m, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("bench: %s within %v", failure, grace)
		}
		if !Pause(ctx, metricsPoll) {
			return nil, ctx.Err()
		}
	}
}
