package conductor_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"runlog/engine/executor"
	"runlog/testbed/bubble"
)

// TestDrainsENG5: a worker that is to end takes no more tasks, and finishes the steps that it
// executes within its grace. No other one executes such a step again. After the grace, one does.
func TestDrainsENG5(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		grace, takes time.Duration
		want         []string
	}{
		"within the grace": {40 * time.Second, 20 * time.Second, []string{"a 1.1"}},
		"after the grace":  {10 * time.Second, 20 * time.Second, []string{"a 1.1", "a 1.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"}]}`)
				w.grace = tt.grace
				begun := make(chan struct{}, 1)
				w.do = func(ctx context.Context, _ executor.Task) error {
					begun <- struct{}{}
					select {
					case <-time.After(tt.takes):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				w.create("run-1")
				ctx, cancel := context.WithCancel(t.Context())
				e := w.engine(-1, false, nil)
				var running sync.WaitGroup
				running.Go(func() { e.Run(ctx) })
				w.start(e, "run-1")
				<-begun
				cancel()
				running.Wait()
				w.do = nil
				w.worker()
				w.until("run-1", "RunCompleted")
				if got := w.executions("run-1"); !slices.Equal(got, tt.want) {
					t.Errorf("got the executions %q, want %q", got, tt.want)
				}
			})
		})
	}
}
