package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeldAppendsSIG2: the appends of a run wait while any caller holds them, as long as their own
// context lasts, and those of other runs do not.
func TestHeldAppendsSIG2(t *testing.T) {
	t.Parallel()
	var r Replica
	first, second := r.Hold("run"), r.Hold("run")
	if err := r.holds.wait(t.Context(), "other"); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	first()
	first() // does not release the second
	if err := r.holds.wait(ended, "run"); !errors.Is(err, context.Canceled) {
		t.Errorf("wait in a held run: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- r.holds.wait(t.Context(), "run") }()
	second()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if n := r.holds.count.Load(); n != 0 || len(r.holds.byRun) != 0 {
		t.Errorf("%d held runs are left, %v", n, r.holds.byRun)
	}
}

// TestLongestHoldSIG2: callers that overlap hold a run for a time at most. Then the appends that
// wait get their turn.
func TestLongestHoldSIG2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r Replica
		began, waited := time.Now(), make(chan time.Duration)
		overdue := r.Hold("run")
		go func() {
			if err := r.holds.wait(t.Context(), "run"); err != nil {
				t.Error(err)
			}
			waited <- time.Since(began)
		}()
		release := overdue
		for range 5 {
			time.Sleep(longestHold / 4)
			next := r.Hold("run")
			release()
			release = next
		}
		if d := <-waited; d > longestHold {
			t.Errorf("an append waited for %v", d)
		}
		overdue() // does not release the one that has begun since
		ended, end := context.WithCancel(t.Context())
		end()
		if err := r.holds.wait(ended, "run"); !errors.Is(err, context.Canceled) {
			t.Errorf("wait in a run that is held again: %v", err)
		}
		release()
		if n := r.holds.count.Load(); n != 0 || len(r.holds.byRun) != 0 {
			t.Errorf("%d held runs are left, %v", n, r.holds.byRun)
		}
	})
}
