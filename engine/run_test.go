package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/mock"
)

// running is a Run in fake time.
type running struct {
	stop context.CancelFunc
	done chan error

	mu      sync.Mutex
	results []engine.Result
}

// run begins a Run with the options of a test.
func run(t *testing.T, o engine.Options) *running {
	t.Helper()
	r := &running{done: make(chan error, 1)}
	o.Report = func(res engine.Result) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.results = append(r.results, res)
	}
	reconciler, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	go func() { r.done <- reconciler.Run(ctx) }()
	return r
}

// statuses returns the statuses of the results so far.
func (r *running) statuses() (list []engine.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range r.results {
		list = append(list, res.Status)
	}
	return list
}

// TestRunQUE11: Run starts runs as they come. A slow start holds up no others, and at most Max are
// started at the same time.
func TestRunQUE11(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := newFakeLog(), mock.New()
		slow := w.request(t, 2)
		free := m.Hang(slow...)
		o := options(w, m)
		o.Max = 3
		r := run(t, o)
		for range 5 { // Beside the slow ones, one at a time.
			w.request(t, 2)
			time.Sleep(time.Second)
		}
		if got := r.statuses(); len(got) != 10 {
			t.Errorf("beside the slow ones, %v were started", got)
		}
		m.Hang("run-13") // Then all hang, and run-14 waits.
		w.request(t, 2)
		time.Sleep(time.Hour / 2)
		if got := len(m.Requests()); got != 13 {
			t.Errorf("%d starts, want 13: two and one hang", got)
		}
		free()
		time.Sleep(time.Minute)
		r.stop()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		got := r.statuses()
		if n := len(got); n != 14 || got[n-1] != engine.StatusFailed || slices.Contains(got[:n-1], engine.StatusFailed) {
			t.Errorf("the results are %v: want one FAILED, of the start that hung to the end", got)
		}
	})
}

// TestStopQUE11: when the context of Run ends, a start may go on for Grace, and then the run waits
// again. No more runs are leased.
func TestStopQUE11(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		free time.Duration // 0: never
		took time.Duration
		want string
	}{
		{0, 10 * time.Second, "FAILED READY RunQueued"},
		{5 * time.Second, 5 * time.Second, "STARTED RUNNING RunQueued,RunStarted"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, m := newFakeLog(), mock.New()
			w.request(t, 1)
			free := m.Hang()
			r := run(t, options(w, m))
			time.Sleep(time.Second)
			stopped := time.Now()
			r.stop()
			time.Sleep(100 * time.Millisecond)
			late := w.request(t, 1)[0]
			if tt.free > 0 {
				time.AfterFunc(tt.free-time.Since(stopped), free)
			}
			if err := <-r.done; err != nil || time.Since(stopped) != tt.took {
				t.Errorf("Run has returned %v after %v, want nil after %v", err, time.Since(stopped), tt.took)
			}
			if got := text(t, w, r.results); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if w.find(late).attempts != 0 {
				t.Error("a run was leased after the stop")
			}
		})
	}
}

// TestRunRetriesQUE11: Run goes on after a failure, with a backoff, also of a cluster that is held
// after a restore. It logs when that begins, seldom while it lasts, and when it is over. Run ends
// with a refusal for good.
func TestRunRetriesQUE11(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := newFakeLog(), mock.New()
		answer := func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.leaseErr = err
		}
		answer(&client.Error{Code: codes.PermissionDenied, Reason: client.ReasonPermissionDenied, Message: "not yet"})
		var said bytes.Buffer
		o := options(w, m)
		o.Logger = slog.New(slog.NewTextHandler(&said, nil))
		r := run(t, o)
		w.request(t, 1)
		time.Sleep(time.Minute)
		w.mu.Lock()
		if w.asked < 12 || w.asked > 40 {
			t.Errorf("asked %d times in a minute, with a backoff of up to 5 s", w.asked)
		}
		w.mu.Unlock()
		answer(&client.Error{Code: codes.FailedPrecondition, Reason: client.ReasonClusterHeld, Message: "not yet"})
		time.Sleep(time.Minute)
		answer(nil)
		time.Sleep(5 * time.Second)
		if got := r.statuses(); !slices.Equal(got, []engine.Status{engine.StatusStarted}) {
			t.Errorf("the results are %v", got)
		}
		refused := &client.Error{Code: codes.InvalidArgument, Reason: client.ReasonInvalidArgumentField, Message: "no such tenant"}
		answer(refused)
		if err := <-r.done; !errors.Is(err, refused) {
			t.Errorf("Run has returned %v, want %v", err, refused)
		}
		if warned, over := strings.Count(said.String(), "cannot lease runs; retrying"), strings.Count(said.String(), "runs are leased again"); warned < 1 || warned > 3 || over != 1 {
			t.Errorf("two minutes without leases have\n%s", said.String())
		}
	})
}
