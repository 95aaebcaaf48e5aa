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

// TestLongestHoldSIG2: a caller that does not release a run holds it for a time, and ends the hold
// of no other caller.
func TestLongestHoldSIG2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r Replica
		overdue := r.Hold("run")
		time.Sleep(longestHold / 2)
		second := r.Hold("run")
		time.Sleep(longestHold * 3 / 4)
		ended, end := context.WithCancel(t.Context())
		end()
		if err := r.holds.wait(ended, "run"); !errors.Is(err, context.Canceled) {
			t.Errorf("wait in a run that the second caller holds: %v", err)
		}
		time.Sleep(longestHold)
		if err := r.holds.wait(t.Context(), "run"); err != nil {
			t.Errorf("wait after the longest hold: %v", err)
		}
		next := r.Hold("run")
		overdue() // does not release the next one
		second()
		if err := r.holds.wait(ended, "run"); !errors.Is(err, context.Canceled) {
			t.Errorf("wait in a run that is held again: %v", err)
		}
		next()
	})
}
