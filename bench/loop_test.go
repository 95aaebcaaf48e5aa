package bench

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"runlog/client"
)

// sleeper answers after a fixed time with a fixed number of events.
func sleeper(d time.Duration, events int) caller {
	return func(ctx context.Context) (int, error) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(d):
			return events, nil
		}
	}
}

func callersOf(n int, call caller) []caller {
	callers := make([]caller, n)
	for i := range callers {
		callers[i] = call
	}
	return callers
}

func TestLoopLeavesTheWarmUpOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &loop{warmUp: 100 * time.Millisecond, duration: time.Second, grace: time.Minute}
		tally, err := l.run(t.Context(), callersOf(8, sleeper(10*time.Millisecond, 3)))
		if err != nil {
			t.Fatal(err)
		}
		r := tally.result(&workload{name: "sleep"}, 0, l.acknowledged.Load())
		if r.Calls != 800 || r.Events != 2400 || r.Acknowledged != 2640 || r.CallsPerSecond != 800 || r.EventsPerSecond != 2400 {
			t.Errorf("%+v", r)
		}
		if p50 := r.Latency.P50; p50 < 10*time.Millisecond || p50 > 10100*time.Microsecond || r.Latency.Max != 10*time.Millisecond {
			t.Errorf("%+v", r.Latency)
		}
	})
}

func TestLoopEndsByCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &loop{warmUp: 100 * time.Millisecond, duration: time.Hour, calls: 50}
		tally, err := l.run(t.Context(), callersOf(8, sleeper(10*time.Millisecond, 1)))
		// 50 calls, 8 at a time, take seven rounds.
		if err != nil || tally.latency.Count() != 50 || tally.elapsed != 70*time.Millisecond {
			t.Errorf("%d calls in %v, %v", tally.latency.Count(), tally.elapsed, err)
		}
	})
}

func TestLoopCountsErrorsByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		call := func(context.Context) (int, error) {
			calls++
			switch calls {
			case 1:
				return 0, &client.Error{Reason: "OVERLOADED"}
			case 2:
				return 0, &answerError{"NOT_PERSISTED", "a duplicate"}
			case 3:
				return 0, &client.Error{Code: 14}
			case 4:
				return 0, errors.New("disk on fire")
			}
			time.Sleep(time.Millisecond)
			return 1, nil
		}
		l := &loop{duration: time.Hour, calls: 10}
		tally, err := l.run(t.Context(), []caller{call})
		want := map[string]uint64{"OVERLOADED": 1, "NOT_PERSISTED": 1, "Unavailable": 1, "ERROR": 1}
		if err != nil || !maps.Equal(tally.errors, want) || tally.latency.Count() != 6 {
			t.Errorf("%v, %d good calls, %v", tally.errors, tally.latency.Count(), err)
		}
	})
}

func TestLoopGivesStragglersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		l := &loop{duration: time.Second, grace: time.Minute}
		tally, err := l.run(t.Context(), callersOf(2, sleeper(time.Hour, 1)))
		if err != nil || time.Since(begun) > 62*time.Second || tally.errors["ERROR"] != 2 {
			t.Errorf("ended after %v with %v, %v", time.Since(begun), tally.errors, err)
		}
	})
}

func TestLoopEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		tally, err := (&loop{duration: time.Hour}).run(ctx, callersOf(2, sleeper(time.Minute, 1)))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second || len(tally.errors) > 0 {
			t.Errorf("ended after %v with %v, %v", time.Since(begun), tally.errors, err)
		}
	})
}
