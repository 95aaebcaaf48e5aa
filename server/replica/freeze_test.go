package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFrozenRunSIG2: the appends of a run wait while any caller has frozen it, as long as their own
// context lasts, and those of other runs do not.
func TestFrozenRunSIG2(t *testing.T) {
	t.Parallel()
	var r Replica
	first, second := r.Freeze("run"), r.Freeze("run")
	if err := r.freezes.wait(t.Context(), "other"); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	first()
	first() // does not release the second
	if err := r.freezes.wait(ended, "run"); !errors.Is(err, context.Canceled) {
		t.Errorf("wait in a frozen run: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- r.freezes.wait(t.Context(), "run") }()
	second()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if n := r.freezes.count.Load(); n != 0 || len(r.freezes.byRun) != 0 {
		t.Errorf("%d frozen runs are left, %v", n, r.freezes.byRun)
	}
}

// TestLongestFreezeSIG2: callers that overlap freeze a run for a time at most. Then the appends
// that wait get their turn.
func TestLongestFreezeSIG2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r Replica
		began, waited := time.Now(), make(chan time.Duration)
		overdue := r.Freeze("run")
		go func() {
			if err := r.freezes.wait(t.Context(), "run"); err != nil {
				t.Error(err)
			}
			waited <- time.Since(began)
		}()
		release := overdue
		for range 5 {
			time.Sleep(longestFreeze / 4)
			next := r.Freeze("run")
			release()
			release = next
		}
		if d := <-waited; d > longestFreeze {
			t.Errorf("an append waited for %v", d)
		}
		overdue() // does not release the one that has begun since
		ended, end := context.WithCancel(t.Context())
		end()
		if err := r.freezes.wait(ended, "run"); !errors.Is(err, context.Canceled) {
			t.Errorf("wait in a run that is frozen again: %v", err)
		}
		release()
		if n := r.freezes.count.Load(); n != 0 || len(r.freezes.byRun) != 0 {
			t.Errorf("%d frozen runs are left, %v", n, r.freezes.byRun)
		}
	})
}
