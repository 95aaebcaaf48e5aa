package load

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client"
)

// sleeper answers after a fixed time with a fixed number of events.
func sleeper(d time.Duration, events int) Caller {
	return func(ctx context.Context) (int, error) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(d):
			return events, nil
		}
	}
}

func lanesOf(n int, call Caller) []Lane {
	lanes := make([]Lane, n)
	for i := range lanes {
		lanes[i] = call.Lane()
	}
	return lanes
}

func TestLoopLeavesTheWarmUpOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Loop{WarmUp: 100 * time.Millisecond, Duration: time.Second, Grace: time.Minute}
		tally, err := l.Run(t.Context(), lanesOf(8, sleeper(10*time.Millisecond, 3)))
		if err != nil {
			t.Fatal(err)
		}
		r := tally.Result(&report.Workload{Name: "sleep"}, 0, l.Acknowledged.Load())
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
		l := &Loop{WarmUp: 100 * time.Millisecond, Duration: time.Hour, Calls: 50}
		tally, err := l.Run(t.Context(), lanesOf(8, sleeper(10*time.Millisecond, 1)))
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
				return 0, target.WrongAnswer("NOT_PERSISTED", "a duplicate")
			case 3:
				return 0, &client.Error{Code: 14}
			case 4:
				return 0, errors.New("disk on fire")
			}
			time.Sleep(time.Millisecond)
			return 1, nil
		}
		l := &Loop{Duration: time.Hour, Calls: 10}
		tally, err := l.Run(t.Context(), lanesOf(1, call))
		want := map[string]uint64{"OVERLOADED": 1, "NOT_PERSISTED": 1, "Unavailable": 1, "ERROR": 1}
		if err != nil || !maps.Equal(tally.errors, want) || tally.latency.Count() != 6 {
			t.Errorf("%v, %d good calls, %v", tally.errors, tally.latency.Count(), err)
		}
	})
}

func TestLoopGivesStragglersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		l := &Loop{Duration: time.Second, Grace: time.Minute}
		tally, err := l.Run(t.Context(), lanesOf(2, sleeper(time.Hour, 1)))
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
		tally, err := (&Loop{Duration: time.Hour}).Run(ctx, lanesOf(2, sleeper(time.Minute, 1)))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second || len(tally.errors) > 0 {
			t.Errorf("ended after %v with %v, %v", time.Since(begun), tally.errors, err)
		}
	})
}

// TestOpenLoopOmitsNothing: a system that stalls for a second is charged for every call that was
// due meanwhile, where a closed loop sees one long call.
func TestOpenLoopOmitsNothing(t *testing.T) {
	stalling := func() Caller {
		begun := time.Now()
		return func(context.Context) (int, error) {
			// Answers at once, but not in the second after the first one.
			if at := time.Since(begun); at >= time.Second && at < 2*time.Second {
				time.Sleep(2*time.Second - at)
			}
			return 1, nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l := &Loop{Duration: 4 * time.Second, Rate: 100, Grace: time.Minute}
		tally, err := l.Run(t.Context(), lanesOf(4, stalling()))
		if err != nil || tally.latency.Count() != 400 || tally.unsent != 0 {
			t.Fatalf("%d calls, %d unsent, %v", tally.latency.Count(), tally.unsent, err)
		}
		// 100 of the 400 calls were due in the stall and waited 505 ms on average.
		if p := tally.latency.Quantile(0.75); p > 20*time.Millisecond {
			t.Errorf("three quarters were not in the stall, and p75 is %v", p)
		}
		if p := tally.latency.Quantile(0.875); p < 480*time.Millisecond || p > 520*time.Millisecond {
			t.Errorf("half of the calls in the stall waited longer than %v", p)
		}
		if p, late := tally.latency.Max(), tally.late.Max(); p != time.Second || late < 900*time.Millisecond {
			t.Errorf("the longest wait was %v, begun %v late", p, late)
		}
		if pause := time.Duration(tally.pause.Load()); pause < 900*time.Millisecond || pause > 1100*time.Millisecond {
			t.Errorf("the longest pause was %v", pause)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		call := stalling()
		slow := Caller(func(ctx context.Context) (int, error) {
			time.Sleep(10 * time.Millisecond)
			return call(ctx)
		})
		tally, err := (&Loop{Duration: 4 * time.Second}).Run(t.Context(), lanesOf(1, slow))
		if p := tally.latency.Quantile(0.99); err != nil || p > 20*time.Millisecond || tally.latency.Max() < 900*time.Millisecond {
			t.Errorf("a closed loop omits the stall: p99 %v, max %v, %v", p, tally.latency.Max(), err)
		}
	})
}

// TestOpenLoopKeepsItsRate: no more calls than are due, however fast the answers are.
func TestOpenLoopKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Loop{WarmUp: 500 * time.Millisecond, Duration: time.Second, Rate: 1000, Grace: time.Minute}
		tally, err := l.Run(t.Context(), lanesOf(16, sleeper(time.Millisecond, 2)))
		r := tally.Result(&report.Workload{Name: "sleep"}, 0, l.Acknowledged.Load())
		if err != nil || r.Calls != 1000 || r.Events != 2000 || r.Acknowledged != 3000 || r.Latency.Max != time.Millisecond || r.LateP99 != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestOpenLoopGivesUp: what a system that is too slow has not even begun when the grace is over is
// said.
func TestOpenLoopGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		l := &Loop{Duration: 10 * time.Second, Rate: 100, Grace: 5 * time.Second}
		tally, err := l.Run(t.Context(), lanesOf(1, sleeper(100*time.Millisecond, 1)))
		// One caller makes 150 calls in 15 s of 1,000 that are due in 10 s.
		if n := tally.latency.Count(); err != nil || n < 149 || n > 150 || tally.unsent < 849 || tally.unsent > 850 {
			t.Errorf("%d calls, %d unsent, %v", n, tally.unsent, err)
		}
		if since := time.Since(begun); since > 15100*time.Millisecond {
			t.Errorf("ended after %v", since)
		}
		if p := tally.latency.Quantile(0.5); p < 6*time.Second {
			t.Errorf("p50 is %v: the wait is not counted", p)
		}
	})
}

func TestOpenLoopEndsByCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Loop{Duration: time.Hour, Rate: 100, Calls: 50}
		tally, err := l.Run(t.Context(), lanesOf(4, sleeper(time.Millisecond, 1)))
		if err != nil || tally.latency.Count() != 50 || tally.unsent != 0 {
			t.Errorf("%d calls, %d unsent, %v", tally.latency.Count(), tally.unsent, err)
		}
	})
}

func TestTimelineIsBounded(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
		if n := len(NewTally(d).timeline); n < 1 || n > maxIntervals {
			t.Errorf("%v has %d intervals", d, n)
		}
	}
}
