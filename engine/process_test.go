package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/mock"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
	"runlog/testbed/seed"
)

// Variables with which the test binary is a reconciler: the addresses of its log and its engine.
const asReconciler, ofEngine = "TEST_ENGINE_LOG", "TEST_ENGINE_URL"

func TestMain(m *testing.M) {
	if os.Getenv(asReconciler) == "" {
		os.Exit(m.Run())
	}
	if err := reconcile(os.Getenv(asReconciler), os.Getenv(ofEngine)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// reconcile is a process that starts runs in an engine behind HTTP until SIGTERM.
func reconcile(log, engineURL string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := client.Dial(log, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := engine.New(engine.Options{Client: c, Worker: fmt.Sprint("process ", os.Getpid()), Tenant: "acme", Max: 4, Wait: time.Second,
		Starter: starterFunc(func(ctx context.Context, req engine.StartRequest) (string, error) {
			post, err := http.NewRequestWithContext(ctx, http.MethodPost, engineURL, strings.NewReader(req.Run.GetRunId()))
			if err != nil {
				return "", err
			}
			res, err := http.DefaultClient.Do(post)
			if err != nil {
				return "", err
			}
			defer res.Body.Close()
			ref, err := io.ReadAll(res.Body)
			if res.StatusCode != http.StatusOK {
				err = errors.Join(err, fmt.Errorf("the engine answered %s", res.Status))
			}
			return string(ref), err
		})})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// TestKillNineQUE11: real reconcilers are killed while they start runs: before the engine has the
// run, before its answer leaves, and soon after. The last one finishes, and stops when it is told.
func TestKillNineQUE11(t *testing.T) {
	t.Parallel()
	kills := 12
	if testing.Short() {
		kills = 3
	}
	ctx, w, m, draw := await.Context(t), newServerWorld(t), mock.New(), seed.Rand(t)
	w.allowAttempts(t, 1000)
	started := w.starts(ctx, t)
	runs, begun := w.request(t, 30), 0
	var drawing sync.Mutex
	drawn := func(n int64) int64 {
		drawing.Lock()
		defer drawing.Unlock()
		return draw.Int64N(n)
	}
	var victim atomic.Pointer[os.Process]
	kill := func() {
		if p := victim.Swap(nil); p != nil {
			_ = p.Kill() // it has ended, or ends now
		}
	}
	web := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		id, _ := io.ReadAll(in.Body)
		fate := drawn(12)
		if fate == 0 {
			kill()
		}
		ref, err := m.Start(in.Context(), engine.StartRequest{Run: &runlogv1.Run{RunId: string(id)}})
		if err != nil {
			out.WriteHeader(http.StatusInternalServerError)
		}
		switch fate {
		case 1:
			kill()
		case 2, 3:
			time.AfterFunc(time.Duration(drawn(int64(5*time.Millisecond))), kill)
		}
		_, _ = io.WriteString(out, ref) // the process may be gone
	}))
	t.Cleanup(web.Close)
	spawn := func() *child {
		p := &child{cmd: exec.Command(os.Args[0]), exited: make(chan error, 1)}
		p.cmd.Env, p.cmd.Stderr = append(os.Environ(), asReconciler+"="+w.srv.Addr(), ofEngine+"="+web.URL), &p.stderr
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // if the test fails
		go func() { p.exited <- p.cmd.Wait() }()
		return p
	}
	for range kills {
		p := spawn()
		victim.Store(p.cmd.Process)
		for lives := true; lives; {
			select {
			case <-p.exited:
				lives = false
			case <-started:
				if begun++; begun == len(runs) { // There is nothing left to kill it at.
					runs = append(runs, w.request(t, 10)...)
				}
			case <-ctx.Done():
				t.Fatalf("a process is not killed: %v", context.Cause(ctx))
			}
		}
		if p.cmd.ProcessState.Exited() {
			t.Errorf("a process has ended by itself: %s", &p.stderr)
		}
		w.expire()
	}
	last := spawn()
	for ; begun < len(runs); begun++ {
		select {
		case <-started:
		case err := <-last.exited:
			t.Fatalf("the last process has ended by itself: %v\n%s", err, &last.stderr)
		case <-ctx.Done():
			t.Fatalf("%d of %d runs are started: %v", begun, len(runs), context.Cause(ctx))
		}
	}
	_ = last.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended, which is told below
	if err := await.Receive(t, "the end of the last process", last.exited); err != nil {
		t.Errorf("the last process: %v\n%s", err, &last.stderr)
	}
	for _, run := range runs {
		ref, state, events := w.stored(t, run)
		if m.Begun(run) != 1 || ref != mock.RefOf(run) || state != runlogv1.QueuedRunState_RUNNING || !slices.Equal(events, []string{"RunQueued", "RunStarted"}) {
			t.Errorf("%s was begun %d times, has the reference %q and the events %v, and is %s", run, m.Begun(run), ref, events, state)
		}
	}
}

// starts returns a channel with a value for each run that is started from now on, and whose lease
// is released.
func (w *serverWorld) starts(ctx context.Context, t testing.TB) <-chan struct{} {
	t.Helper()
	started, watching := make(chan struct{}, 1000), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	t.Cleanup(func() { cancel(); ended.Wait() })
	ended.Go(func() {
		req := &runlogv1.WatchRunsRequest{TenantId: "acme", View: runlogv1.WatchView_EVENT, Types: []string{"RunStarted"}}
		for res, err := range w.WatchRuns(ctx, req) {
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			if res.GetCaughtUp() != nil {
				close(watching)
			}
			for range res.GetEvents().GetEvents() {
				started <- struct{}{}
			}
		}
	})
	await.Receive(t, "the beginning of the watch", watching)
	return started
}

// child is a process with a reconciler.
type child struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer // of a process that has exited
	exited chan error
}
