package bench

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"runlog/client"
)

// errorPause keeps a caller whose calls fail at once from spinning.
const errorPause = 10 * time.Millisecond

// caller makes one call and waits for its answer. Each is used by one goroutine. events is how many events
// (or echoes, or writes) the answer acknowledged.
type caller func(ctx context.Context) (events int, err error)

// answerError is a call that succeeded with an answer that it must not have.
type answerError struct {
	reason, message string
}

func (e *answerError) Error() string { return e.message }

// reasonOf names an error in a way that errors can be counted by.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*answerError](err); ok {
		return e.reason
	}
	e, ok := errors.AsType[*client.Error](err)
	switch {
	case !ok:
		return "ERROR"
	case e.Reason != "":
		return e.Reason
	default:
		return e.Code.String()
	}
}

// loop drives callers, each of which makes its next call when the last one has been answered.
type loop struct {
	warmUp, duration time.Duration
	// calls bounds the calls that are measured; 0: only the duration does.
	calls uint64
	// grace is how long calls that are under way at the end are waited for.
	grace time.Duration
	// acknowledged counts the events acknowledged so far, for whoever looks on.
	acknowledged atomic.Uint64
}

// tally is what came of a loop.
type tally struct {
	latency Histogram     // of the measured calls that succeeded
	events  atomic.Uint64 // acknowledged by them
	elapsed time.Duration // from the end of the warm-up to the last answer

	mu     sync.Mutex
	errors map[string]uint64 // by reason, warm-up included
	first  error
}

func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = err
		t.errors = make(map[string]uint64)
	}
	t.errors[reasonOf(err)]++
}

// run returns once every caller is done. A call that fails is counted and the caller goes on; only the end
// of ctx ends the loop early.
func (l *loop) run(ctx context.Context, callers []caller) (*tally, error) {
	var (
		t        = &tally{}
		start    = time.Now().Add(l.warmUp)
		end      = start.Add(l.duration)
		budget   atomic.Uint64
		last     atomic.Int64 // nanoseconds after start at which the last measured call was answered
		finished sync.WaitGroup
	)
	// Not a deadline: gRPC would send that along, and start a timer for it, with every call.
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	if l.grace > 0 {
		timer := time.AfterFunc(l.warmUp+l.duration+l.grace, cancel)
		defer timer.Stop()
	}
	for _, call := range callers {
		finished.Go(func() {
			for {
				begun := time.Now()
				measured := !begun.Before(start)
				if ctx.Err() != nil || !begun.Before(end) || measured && l.calls > 0 && budget.Add(1) > l.calls {
					return
				}
				n, err := call(calling)
				answered := time.Now()
				if err != nil {
					if ctx.Err() == nil {
						t.fail(err)
						pause(ctx, errorPause)
					}
					continue
				}
				l.acknowledged.Add(uint64(n))
				if measured {
					t.latency.Record(answered.Sub(begun))
					t.events.Add(uint64(n))
					raise(&last, int64(answered.Sub(start)))
				}
			}
		})
	}
	finished.Wait()
	t.elapsed = time.Duration(last.Load())
	return t, ctx.Err()
}

// raise sets a to v where that is more.
func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// result turns a tally into what is reported.
func (t *tally) result(w *workload, requestBytes int, acknowledged uint64) *Result {
	r := &Result{
		Name:         w.name,
		Limit:        w.limit,
		Callers:      w.callers,
		Batch:        w.batch,
		RequestBytes: requestBytes,
		Seconds:      t.elapsed.Seconds(),
		Calls:        t.latency.Count(),
		Events:       t.events.Load(),
		Acknowledged: acknowledged,
		Errors:       maps.Clone(t.errors),
		Latency: Latency{
			P50:  t.latency.Quantile(0.50),
			P90:  t.latency.Quantile(0.90),
			P99:  t.latency.Quantile(0.99),
			P999: t.latency.Quantile(0.999),
			Max:  t.latency.Max(),
		},
	}
	if r.Seconds > 0 {
		r.CallsPerSecond = float64(r.Calls) / r.Seconds
		r.EventsPerSecond = float64(r.Events) / r.Seconds
	}
	return r
}
