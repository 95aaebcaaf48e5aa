package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/mock"
	runlogv1 "runlog/proto/runlog/v1"
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
	began, w, m := time.Now(), newServerWorld(t), mock.New()
	w.allowAttempts(t, 1000)
	runs := w.request(t, 30)
	var victim atomic.Pointer[os.Process]
	kill := func() {
		if p := victim.Swap(nil); p != nil {
			_ = p.Kill() // it has ended, or ends now
		}
	}
	web := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		id, _ := io.ReadAll(in.Body)
		fate := rand.IntN(12)
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
			time.AfterFunc(rand.N(5*time.Millisecond), kill)
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
		go func() { p.exited <- p.cmd.Wait() }()
		return p
	}
	for range kills {
		p := spawn()
		victim.Store(p.cmd.Process)
		for p.runs() {
			if w.started(t, runs) { // There is nothing left to kill it at.
				runs = append(runs, w.request(t, 10)...)
			}
		}
		if p.cmd.ProcessState.Exited() {
			t.Errorf("a process has ended by itself: %s", &p.stderr)
		}
		w.expire()
	}
	last := spawn()
	for last.runs() && !w.started(t, runs) {
		if time.Since(began) > time.Minute {
			_ = last.cmd.Process.Kill() // it is joined below
		}
	}
	_ = last.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended, which is told below
	if err := <-last.exited; err != nil {
		t.Errorf("the last process: %v\n%s", err, &last.stderr)
	}
	for _, run := range runs {
		ref, state, events := w.stored(t, run)
		if m.Begun(run) != 1 || ref != mock.RefOf(run) || state != runlogv1.QueuedRunState_RUNNING || !slices.Equal(events, []string{"RunQueued", "RunStarted"}) {
			t.Errorf("%s was begun %d times, has the reference %q and the events %v, and is %s", run, m.Begun(run), ref, events, state)
		}
	}
}

// child is a process with a reconciler.
type child struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer // of a process that has exited
	exited chan error
}

// runs waits a moment, and reports whether the process has not exited.
func (p *child) runs() bool {
	select {
	case err := <-p.exited:
		p.exited <- err
		return false
	case <-time.After(5 * time.Millisecond):
		return true
	}
}

// started reports whether runs are started and their leases released.
func (w *serverWorld) started(t *testing.T, runs []string) bool {
	t.Helper()
	q, err := w.GetQueue(t.Context(), &runlogv1.GetQueueRequest{TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", Queue: w.queue})
	if err != nil {
		t.Fatal(err)
	}
	return q.GetQueue().GetRunning() == uint64(len(runs))
}
