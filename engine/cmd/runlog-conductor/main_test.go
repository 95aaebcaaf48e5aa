package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/watcher"
	"runlog/engine/conductor/conductortest"
	"runlog/engine/program/programtest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// bed is a fake Conductor, and a server of runlog, on the network of the machine.
type bed struct {
	t      *testing.T
	fake   *conductortest.Server
	server *clienttest.Server
	log    *client.Client
	dir    string
}

func newBed(t *testing.T, opts ...conductortest.Option) *bed {
	t.Helper()
	b := &bed{t: t, fake: conductortest.Start(t, opts...), server: clienttest.Start(t), dir: t.TempDir()}
	b.log = b.server.Client(client.Options{})
	return b
}

// args returns the command line of a worker. The flags of the bed are the last ones, and override
// more, unless more names other servers.
func (b *bed) args(more ...string) []string {
	args := slices.Concat([]string{"worker", "--owner-email", "ops@acme.example", "--conductor", b.fake.URL(), "--server", b.server.Addr()}, more)
	return append(args, "--tenant", "acme", "--project", "web", "--allow", "file://"+b.dir, "--wait", "1s", "--response-timeout", "5s")
}

// work lets a worker work until the test ends, or until stop is called, which returns its error.
func (b *bed) work(more ...string) (stop func() error) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var said bytes.Buffer
	var err error
	var working sync.WaitGroup
	working.Go(func() { err = run(ctx, &said, &said, b.args(more...)) })
	b.t.Cleanup(func() {
		cancel()
		working.Wait()
		b.t.Logf("the worker: %v\n%s", err, said.String())
	})
	return func() error { cancel(); working.Wait(); return err }
}

// request requests a run of a plan with some steps.
func (b *bed) request(run, steps string) {
	b.t.Helper()
	b.requestPlan(run, run, fmt.Sprintf(`{"schemaVersion":"v1.2","planId":%q,"planVersion":"1","steps":[%s]}`, run, steps), "")
}

// requestPlan requests a run of a plan, whose URI is that of a file which the worker may read,
// unless uri is another one.
func (b *bed) requestPlan(run, planID, body, uri string) {
	b.t.Helper()
	path := filepath.Join(b.dir, run+".json")
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if uri == "" {
		uri = "file://" + path
	}
	ref := &runlogv1.PlanRef{PlanId: planID, PlanVersion: "1", SchemaVersion: "v1.2", Uri: uri, Sha256: fmt.Sprintf("%x", sha256.Sum256([]byte(body)))}
	if _, err := b.log.RequestRun(b.t.Context(), &runlogv1.RequestRunRequest{RunRequestId: run, RunId: run, TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", PlanRef: ref}); err != nil {
		b.t.Fatal(err)
	}
}

// until returns the events of a run as soon as they have one of a type.
func (b *bed) until(run, event string) (list []string) {
	b.t.Helper()
	for e, err := range watcher.Events(await.Context(b.t), b.log, run, 0, "") {
		if err != nil {
			b.t.Fatalf("there is no %s among %q: %v", event, list, err)
		}
		list = append(list, fmt.Sprint(e.GetEventType(), " ", e.GetStepId(), " ", e.GetEngineAttemptId(), " ", string(e.GetPayloadJson())))
		if e.GetEventType() == event {
			break
		}
	}
	return list
}

// TestWorkerENG5: a worker starts a run that was requested, executes its steps in their order, and
// ends the run; one whose step fails, too.
func TestWorkerENG5(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	stop := b.work()
	b.request("run-1", `{"stepId":"a","type":"noop"},{"stepId":"b","type":"noop","class":"data","dependsOn":["a"]}`)
	events := b.until("run-1", "RunCompleted")
	var got []string
	for _, e := range events {
		if strings.HasPrefix(e, "Step") {
			got = append(got, strings.Join(strings.Fields(e)[:2], " "))
		}
	}
	if want := "StepStarted a, StepCompleted a, StepStarted b, StepCompleted b"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
	b.request("run-2", `{"stepId":"a","type":"http","retry":{"maxAttempts":1},"inputs":{"url":"http://127.0.0.1:1/"}}`)
	b.until("run-2", "RunFailed")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if list := b.fake.Workflows("run-1"); len(list) != 1 || list[0].Status != "COMPLETED" && list[0].Status != "TERMINATED" {
		t.Errorf("the workflows of the run are %+v", list)
	}
}

// TestSignalsSIG6: a worker hands a signal over at once: a CANCEL ends a run whose step waits.
func TestSignalsSIG6(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	begun := make(chan struct{}, 1)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { begun <- struct{}{}; <-r.Context().Done() }))
	t.Cleanup(slow.Close)
	b.work("--http-networks", "127.0.0.0/8", "--executors", "http")
	b.request("run-1", `{"stepId":"a","type":"http","inputs":{"url":"`+slow.URL+`"}}`)
	await.Receive(t, "the step", begun)
	if _, err := b.log.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: "run-1", SignalId: "s-1", SignalType: "CANCEL"}); err != nil {
		t.Fatal(err)
	}
	b.until("run-1", "RunCancelled")
}

// TestDrainsENG5: a process that gets SIGTERM takes no more steps, finishes the one that it
// executes within --grace, and exits with 0.
func TestDrainsENG5(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	begun, free := make(chan struct{}, 1), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		select {
		case <-free:
			_, _ = io.WriteString(w, "{}")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	p := programtest.Start(t, programtest.Command(b.args("--http-networks", "127.0.0.0/8", "--executors", "http", "--grace", "10m")...))
	b.request("run-1", `{"stepId":"a","type":"http","inputs":{"url":"`+slow.URL+`"}},{"stepId":"b","type":"noop","dependsOn":["a"]}`)
	await.Receive(t, "the step", begun)
	p.Terminate(t)
	p.Says(t, programtest.Has("worker stops"))
	close(free)
	if code := p.Wait(t); code != 0 {
		t.Errorf("the worker exits with %d:\n%s", code, p.Said)
	}
	events := b.until("run-1", "StepCompleted")
	if last := events[len(events)-1]; !strings.HasPrefix(last, "StepCompleted a 1 ") {
		t.Errorf("the step ends with %s among %q", last, events)
	}
}
