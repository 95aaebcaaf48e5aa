package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/mock"
)

// options returns those of a reconciler of a test in fake time.
func options(w *fakeLog, s engine.Starter) engine.Options {
	return engine.Options{Client: w, Starter: s, Worker: "worker", TTL: 30 * time.Second, StartTimeout: time.Hour}
}

// begin calls DequeueAndStart, and returns a way to get its only result.
func begin(ctx context.Context, t testing.TB, o engine.Options) (result func() engine.Result) {
	t.Helper()
	r, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan []engine.Result, 1)
	go func() {
		results, err := r.DequeueAndStart(ctx)
		if err != nil {
			t.Error(err)
		}
		done <- results
	}()
	return func() engine.Result {
		results := <-done
		if len(results) != 1 {
			t.Fatalf("results %v, want one", results)
		}
		return results[0]
	}
}

// TestLongStartQUE7: the lease of a start that takes long is renewed, and no other worker gets the
// run.
func TestLongStartQUE7(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := newFakeLog(), mock.New()
		w.request(t, 1)
		free := m.Hang()
		result := begin(t.Context(), t, options(w, m))
		for range 20 {
			time.Sleep(30 * time.Second)
			if others := dequeue(t, w, mock.New()); len(others) != 0 {
				t.Fatalf("another worker got %v", others)
			}
		}
		free()
		if res := result(); res.Status != engine.StatusStarted || w.renewals < 20 {
			t.Errorf("result %+v after %d renewals", res, w.renewals)
		}
	})
}

// TestLostLeaseEndsStartQUE7: when the lease is lost, the context of the start ends, and says why.
func TestLostLeaseEndsStartQUE7(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := newFakeLog(), mock.New()
		run := w.request(t, 1)[0]
		m.Hang()
		began, result := time.Now(), begin(t.Context(), t, options(w, m))
		synctest.Wait()
		w.cancel(run)
		res := result()
		e, _ := errors.AsType[*client.Error](res.Err)
		if took := time.Since(began); took > 10*time.Second || res.Status != engine.StatusFailed || e == nil || e.Reason != client.ReasonLeaseLost {
			t.Errorf("result %+v after %v", res, took)
		}
	})
}

// TestSilentLogQUE9: if no renewal is answered, the start ends when the lease does.
func TestSilentLogQUE9(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := newFakeLog(), mock.New()
		w.request(t, 1)
		m.Hang()
		w.silent = make(chan struct{})
		began, result := time.Now(), begin(t.Context(), t, options(w, m))
		if res := result(); time.Since(began) != 30*time.Second || res.Status != engine.StatusFailed || !strings.Contains(res.Err.Error(), "expired") {
			t.Errorf("result %+v after %v", res, time.Since(began))
		}
	})
}

// TestStartTimeoutQUE11: a start that hangs ends, and its run waits again.
func TestStartTimeoutQUE11(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := newFakeLog(), mock.New()
		w.request(t, 1)
		m.Hang()
		o := options(w, m)
		o.StartTimeout = 2 * time.Minute
		began, result := time.Now(), begin(t.Context(), t, o)
		res := result()
		if took := time.Since(began); took != 2*time.Minute || !strings.Contains(res.Err.Error(), "longer than 2m") {
			t.Errorf("result %+v after %v", res, took)
		}
		if got := text(t, w, []engine.Result{res}); got != "FAILED READY RunQueued" {
			t.Error(got)
		}
	})
}

// TestCancelledCallQUE11: the end of the caller's context ends the start, and the run waits again.
// What the engine has answered before is recorded.
func TestCancelledCallQUE11(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newFakeLog()
			w.request(t, 1)
			ctx, cancel := context.WithCancel(t.Context())
			result := begin(ctx, t, options(w, starterFunc(func(ctx context.Context, req engine.StartRequest) (string, error) {
				<-ctx.Done()
				if answered {
					return mock.RefOf(req.Run.GetRunId()), nil
				}
				return "", ctx.Err()
			})))
			synctest.Wait()
			cancel()
			want := "FAILED READY RunQueued"
			if answered {
				want = "STARTED RUNNING RunQueued,RunStarted"
			}
			if got := text(t, w, []engine.Result{result()}); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
