package conductortest_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/engine/conductor/api"
	"runlog/engine/conductor/conductortest"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

type world struct {
	t   *testing.T
	srv *conductortest.Server
	c   *api.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, srv: conductortest.Start(t, conductortest.On(network.New(1)))}
	var err error
	if w.c, err = api.New(api.Options{URL: w.srv.URL(), Transport: w.srv.Transport()}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) do(req *http.Request) (*http.Response, error) {
	return (&http.Client{Transport: w.srv.Transport()}).Do(req)
}

// start starts a workflow of one task with one retry.
func (w *world) start(optional bool) string {
	w.t.Helper()
	id, err := w.c.Start(w.t.Context(), api.StartRequest{Name: "one", CorrelationID: "run", Input: map[string]any{}, Definition: &api.Definition{
		Name: "one", Version: 1, SchemaVersion: 2, OwnerEmail: "a@example.com", TimeoutPolicy: "ALERT_ONLY",
		Tasks: []api.TaskDefinition{{Name: "work", TaskReferenceName: "a", Type: api.Simple, Optional: optional,
			TaskDefinition: &api.Limits{Name: "work", OwnerEmail: "a@example.com", RetryCount: 1, RetryLogic: "FIXED",
				RetryDelaySeconds: 5, TimeoutPolicy: "RETRY", ResponseTimeoutSeconds: 60}}}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// poll returns the task that is due; nil: there is none.
func (w *world) poll() *api.Task {
	w.t.Helper()
	tasks, err := w.c.Poll(w.t.Context(), "work", "worker", 10, time.Millisecond)
	if err != nil || len(tasks) > 1 {
		w.t.Fatalf("got %v, %v", tasks, err)
	}
	if len(tasks) == 0 {
		return nil
	}
	return &tasks[0]
}

func (w *world) update(task *api.Task, r api.TaskResult) {
	w.t.Helper()
	r.WorkflowID, r.TaskID = task.WorkflowID, task.ID
	if err := w.c.Update(w.t.Context(), r); err != nil {
		w.t.Fatal(err)
	}
}

// TestClock: a silent worker loses its task, but not while it extends the lease, nor in a pause.
// The retry is a new task, after its delay, and the late update is ignored.
func TestClock(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testClock)
}

func testClock(t *testing.T) {
	w := newWorld(t)
	id := w.start(false)
	first := w.poll()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.srv.URL()+"/api/tasks/"+first.ID+"/log", strings.NewReader("begun"))
	if err != nil {
		t.Fatal(err)
	}
	if res, err := w.do(req); err != nil || res.Body.Close() != nil || !slices.Equal(w.srv.Logs(first.ID), []string{"begun"}) {
		t.Errorf("got %q, %v", w.srv.Logs(first.ID), err)
	}
	w.srv.Advance(50 * time.Second)
	w.update(first, api.TaskResult{ExtendLease: true})
	w.srv.Advance(50 * time.Second)
	if err := w.c.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.srv.Advance(time.Hour)
	if got := w.srv.Workflow(id).Tasks; len(got) != 1 || got[0].Status != conductortest.InProgress {
		t.Fatalf("got %+v", got[0])
	}
	if err := w.c.Resume(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if w.poll() != nil {
		t.Error("a retry has no delay")
	}
	if !w.srv.AdvanceToDue() {
		t.Error("there is no retry")
	}
	second := w.poll()
	if second == nil || second.RetryCount != 1 || second.ID == first.ID || second.ReferenceName != "a" {
		t.Fatalf("got %+v", second)
	}
	w.update(first, api.TaskResult{Status: api.Completed, Output: map[string]any{"late": true}})
	if got := w.srv.Workflow(id).Tasks[0]; got.Status != conductortest.TimedOut || len(got.OutputData) > 0 || !got.Retried {
		t.Errorf("got %+v", got)
	}
	w.update(second, api.TaskResult{Status: api.InProgress, CallbackAfter: 30})
	if w.poll() != nil {
		t.Error("a task comes back early")
	}
	w.srv.Advance(30 * time.Second)
	third := w.poll()
	if third == nil || third.ID != second.ID {
		t.Fatalf("got %+v", third)
	}
	w.update(third, api.TaskResult{Status: api.Completed})
	if got := w.srv.Workflow(id); got.Status != conductortest.Completed {
		t.Errorf("got %s", got.Status)
	}
}

// TestFailures: without retries left, a task ends its workflow, unless it may fail.
func TestFailures(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testFailures)
}

func testFailures(t *testing.T) {
	for optional, want := range map[bool]string{false: conductortest.Failed, true: conductortest.Completed} {
		w := newWorld(t)
		id := w.start(optional)
		for range 2 {
			w.srv.AdvanceToDue()
			w.update(w.poll(), api.TaskResult{Status: api.Failed, Reason: "broken"})
		}
		got := w.srv.Workflow(id)
		if got.Status != want || optional != (got.Tasks[1].Status == conductortest.CompletedWithErrors) {
			t.Errorf("optional %v: the workflow is %s, and the task %s", optional, got.Status, got.Tasks[1].Status)
		}
	}
}

// TestRefusals: statuses of requests that are not as Conductor wants them.
func TestRefusals(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRefusals)
}

func testRefusals(t *testing.T) {
	w := newWorld(t)
	id := w.start(false)
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, "/api/workflow", `{"name":"none","input":{}}`, 404},
		{http.MethodPost, "/api/workflow", `{"input":{}}`, 400},
		{http.MethodPost, "/api/workflow", `{"name":"x","workflowDef":{"name":"x","tasks":[]}}`, 400},
		{http.MethodPost, "/api/workflow", `{`, 400},
		{http.MethodPost, "/api/metadata/taskdefs", `[{"name":"t"}]`, 400},
		{http.MethodPost, "/api/metadata/taskdefs", `[{"name":"t","ownerEmail":"a@example.com"}]`, 200},
		{http.MethodPost, "/api/metadata/taskdefs", `[{"name":"t","ownerEmail":"a@example.com","responseTimeoutSeconds":0}]`, 400},
		{http.MethodGet, "/api/metadata/taskdefs/none", "", 404},
		{http.MethodPut, "/api/workflow/" + id + "/resume", "", 500},
		{http.MethodPut, "/api/workflow/" + id + "/skiptask/a", "", 500},
		{http.MethodPost, "/api/workflow/" + id + "/retry", "", 404},
		{http.MethodDelete, "/api/workflow/" + id + "?reason=x", "", 200},
		{http.MethodDelete, "/api/workflow/" + id, "", 200},
		{http.MethodPut, "/api/workflow/" + id + "/pause", "", 409},
		{http.MethodPost, "/api/tasks", `{"taskId":"x"}`, 400},
		{http.MethodPost, "/api/tasks", `{"taskId":"x","workflowInstanceId":"` + id + `"}`, 404},
		{http.MethodGet, "/api/tasks/poll/batch/work?timeout=5001", "", 400},
		{http.MethodGet, "/api/tasks/poll/work", "", 204},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, w.srv.URL()+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s %s: want %d, got %d: %s", tt.method, tt.path, tt.status, res.StatusCode, body)
		}
	}
}
