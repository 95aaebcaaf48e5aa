package signals

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestLimiterSIG5: a run gets its signals in a minute that begins with a signal, whatever others
// get.
func TestLimiterSIG5(t *testing.T) {
	now := time.Unix(1_770_000_000, 0)
	l := newLimiter(3, func() time.Time { return now })
	id := 0
	take := func(key string, want time.Duration) {
		t.Helper()
		if id++; id == 3 {
			for range 10 { // Retries count once.
				l.take("a", "1")
			}
		}
		if got := l.take(key, fmt.Sprint(id)); got != want {
			t.Errorf("%s: delay %v, want %v", key, got, want)
		}
	}
	for range 3 {
		take("a", 0)
	}
	now = now.Add(20 * time.Second)
	take("a", 40*time.Second)
	take("b", 0)
	now = now.Add(40 * time.Second)
	take("a", 0)
	take("b", 0)
	take("b", 0)
	take("b", 20*time.Second)
	now = now.Add(-time.Hour) // a clock that goes back must not lock a run out
	take("b", 0)
}

// TestLimiterIsBoundedSIG5: runs are forgotten, so that their number does not matter.
func TestLimiterIsBoundedSIG5(t *testing.T) {
	now := time.Unix(1_770_000_000, 0)
	l := newLimiter(1, func() time.Time { return now })
	for i := range 3 * maxCounted {
		l.take(fmt.Sprint(i), "s")
		if len(l.byKey) > maxCounted || l.periods.Len() != len(l.byKey) {
			t.Fatalf("%d runs are counted", len(l.byKey))
		}
	}
	now = now.Add(limitPeriod)
	l.take("last", "s")
	if len(l.byKey) != 1 {
		t.Errorf("%d runs are counted after a minute", len(l.byKey))
	}
}

// TestKeyedLocks: one caller at a time has the lock of a key, a caller whose context ends leaves,
// and no key stays.
func TestKeyedLocks(t *testing.T) {
	t.Parallel()
	var k keyedLocks
	counts := map[string]*int{"a": new(int), "b": new(int)}
	var all sync.WaitGroup
	for key, n := range counts {
		for range 50 {
			all.Go(func() {
				unlock, err := k.lock(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				*n++
				unlock()
			})
		}
	}
	all.Wait()
	unlock, err := k.lock(t.Context(), "a")
	if err != nil || *counts["a"] != 50 || *counts["b"] != 50 {
		t.Fatalf("counts %d and %d, error %v", *counts["a"], *counts["b"], err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("lock of a key that is held: %v", err)
	}
	unlock()
	if len(k.locks) != 0 {
		t.Errorf("%d keys stay", len(k.locks))
	}
}
