package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runlog/engine/conductor/api"
	"runlog/engine/conductor/conductortest"
	"runlog/engine/secret"
)

const token = "hunter2-correct-horse"

func definition(tasks ...string) *api.Definition {
	fork := api.TaskDefinition{Name: "fork", TaskReferenceName: "fork", Type: api.Fork}
	join := api.TaskDefinition{Name: "join", TaskReferenceName: "join", Type: api.Join, JoinOn: tasks}
	for _, name := range tasks {
		fork.ForkTasks = append(fork.ForkTasks, []api.TaskDefinition{{Name: "work", TaskReferenceName: name, Type: api.Simple, Optional: true,
			TaskDefinition: &api.Limits{Name: "work", OwnerEmail: "a@example.com", RetryCount: 3, RetryLogic: "FIXED", TimeoutPolicy: "RETRY", ResponseTimeoutSeconds: 60}}})
	}
	return &api.Definition{Name: "runlog", Version: 1, SchemaVersion: 2, OwnerEmail: "a@example.com", TimeoutPolicy: "ALERT_ONLY",
		Tasks: []api.TaskDefinition{fork, join}}
}

func newClient(t *testing.T, o api.Options) *api.Client {
	t.Helper()
	c, err := api.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t *testing.T, c *api.Client, run string) string {
	t.Helper()
	id, err := c.Start(t.Context(), api.StartRequest{Name: "runlog", CorrelationID: run, Input: map[string]any{}, Definition: definition("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// authorization returns a secret value.
func authorization(t testing.TB) secret.Value {
	t.Helper()
	set, err := secret.NewSet(map[string]string{"env:CONDUCTOR": token})
	if err != nil {
		t.Fatal(err)
	}
	value, err := set.Get("env:CONDUCTOR")
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestCallsENG5 goes through the life of a workflow. A pause drains: a task that was scheduled is
// polled, and its update is taken.
func TestCallsENG5(t *testing.T) {
	t.Parallel()
	srv := conductortest.Start(t, conductortest.Authorized(token))
	c := newClient(t, api.Options{URL: srv.URL() + "/", Authorization: authorization(t)})
	ctx := t.Context()
	if err := c.Health(ctx); err != nil {
		t.Fatal(err)
	}
	run := "team/run 7 ü?&%"
	id := start(t, c, run)
	if err := c.Pause(ctx, id); err != nil {
		t.Fatal(err)
	}
	found, err := c.Correlated(ctx, "runlog", run)
	if err != nil || len(found) != 1 || found[0].ID != id || found[0].Status != api.Paused || found[0].Ended() {
		t.Errorf("got %+v, %v", found, err)
	}
	tasks, err := c.Poll(ctx, "work", "worker", 10, time.Minute)
	if err != nil || len(tasks) != 2 || tasks[0].CorrelationID != run || tasks[0].ReferenceName != "a" || tasks[0].WorkflowID != id {
		t.Fatalf("got %+v, %v", tasks, err)
	}
	for _, task := range tasks {
		if err := c.Update(ctx, api.TaskResult{WorkflowID: id, TaskID: task.ID, ExtendLease: true}); err != nil {
			t.Error(err)
		}
		if err := c.Update(ctx, api.TaskResult{WorkflowID: id, TaskID: task.ID, Status: api.Completed}); err != nil {
			t.Error(err)
		}
		if got, err := c.Task(ctx, task.ID); err != nil || got.Status != api.Completed || !got.Ended() {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if w, err := c.Workflow(ctx, id, true); err != nil || w.Status != api.Paused || len(w.Tasks) != 4 {
		t.Errorf("got %+v, %v", w, err)
	}
	if err := c.Resume(ctx, id); err != nil {
		t.Error(err)
	}
	if w, err := c.Workflow(ctx, id, false); err != nil || w.Status != api.Completed || !w.Ended() || len(w.Tasks) > 0 {
		t.Errorf("got %+v, %v", w, err)
	}
	if err := c.Resume(ctx, id); !api.HasStatus(err, http.StatusInternalServerError) {
		t.Errorf("got %v", err)
	}
	if err := c.Terminate(ctx, id, "late"); !api.HasStatus(err, http.StatusConflict) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Workflow(ctx, "no/such", false); !api.HasStatus(err, http.StatusNotFound) || !strings.Contains(err.Error(), "no/such") {
		t.Errorf("got %v", err)
	}
}

// TestTriesENG1: calls are tried again, but a start is not, which would make another workflow.
func TestTriesENG1(t *testing.T) {
	t.Parallel()
	srv := conductortest.Start(t)
	c := newClient(t, api.Options{URL: srv.URL()})
	id := start(t, c, "run-1")
	srv.Fail(2, conductortest.OpPause)
	srv.LoseAnswers(1, conductortest.OpPause)
	if err := c.Pause(t.Context(), id); err != nil || srv.Workflow(id).Status != conductortest.Paused || srv.Calls(conductortest.OpPause) != 4 {
		t.Errorf("got %v after %d calls", err, srv.Calls(conductortest.OpPause))
	}
	srv.Fail(100, conductortest.OpTerminate)
	err := c.Terminate(t.Context(), id, "x")
	if !api.HasStatus(err, 500) || srv.Calls(conductortest.OpTerminate) != api.DefaultAttempts {
		t.Errorf("got %v after %d calls", err, srv.Calls(conductortest.OpTerminate))
	}
	srv.LoseAnswers(1, conductortest.OpStart)
	_, err = c.Start(t.Context(), api.StartRequest{Name: "runlog", CorrelationID: "run-2", Input: map[string]any{}, Definition: definition("a")})
	if failure, ok := errors.AsType[*api.Error](err); !ok || failure.Status != 0 || len(srv.Workflows("run-2")) != 1 {
		t.Errorf("got %v, and %d workflows", err, len(srv.Workflows("run-2")))
	}
	srv.Down()
	if err := c.Health(t.Context()); err == nil {
		t.Error("a server that is down is healthy")
	}
	srv.Up()
	if err := c.Health(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestContextsENG1: a call ends with its context, also while the server hangs.
func TestContextsENG1(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &hanging{}
		c := newClient(t, api.Options{URL: "https://conductor.example", Transport: server, Timeout: 20 * time.Millisecond, Attempts: 2})
		if _, err := c.Workflow(t.Context(), "id", false); !errors.Is(err, context.DeadlineExceeded) || server.calls != 2 {
			t.Errorf("after %d calls got %v", server.calls, err)
		}
		c = newClient(t, api.Options{URL: "https://conductor.example", Transport: server})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := c.Pause(ctx, "id"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// hanging is a transport to a server that never answers.
type hanging struct{ calls int }

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	h.calls++
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// answers is a transport that gives the same answer to each request.
type answers struct {
	status int
	body   []byte
	header http.Header
	calls  int
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.calls++
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)), Request: r}, nil
}

// TestErrorsENG1: an error says operation, cause and remedy. No redirect is followed, and answers
// are bounded.
func TestErrorsENG1(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		answer answers
		want   string
		tries  int
	}{
		{"denied", answers{status: 401, body: []byte(`{"message":"Token ` + token + ` expired"}`)},
			"conductor: cannot pause workflow 1: status 401, Token [secret] expired; check the value of X-Authorization, and what it may do", 1},
		{"validation", answers{status: 400, body: []byte(`{"message":"Failed:","validationErrors":[{"path":"a.b","message":"is empty"}]}`)},
			"conductor: cannot pause workflow 1: status 400, Failed: a.b: is empty.; correct the request; this Conductor may be of another version", 1},
		{"no text", answers{status: 503}, "conductor: cannot pause workflow 1: status 503, no text; try again; check that Conductor is up, and its log", 4},
		{"too many", answers{status: 429, body: []byte("slow\xff")}, "conductor: cannot pause workflow 1: status 429, slow\uFFFD; try again; check that Conductor is up, and its log", 4},
		{"redirect", answers{status: 302, header: http.Header{"Location": {"http://elsewhere/"}}},
			"conductor: cannot pause workflow 1: status 302, no text; use the URL that Conductor redirects to", 1},
		{"ended", answers{status: 409, body: []byte(`{"message":"over"}`)}, "conductor: cannot pause workflow 1: status 409, over; the workflow has ended: read its status", 1},
		{"large", answers{status: 200, body: make([]byte, 1001)},
			"conductor: cannot pause workflow 1: status 413, the answer has more than 1000 bytes; correct the request; this Conductor may be of another version", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, api.Options{URL: "https://conductor.example", Transport: &tt.answer, Authorization: authorization(t), MaxAnswer: 1000})
			if err := c.Pause(t.Context(), "1"); err == nil || err.Error() != tt.want || tt.answer.calls != tt.tries {
				t.Errorf("%s: after %d tries got %v", tt.name, tt.answer.calls, err)
			}
		})
	}
}

// TestOptionsENG1: every fault is told, and none repeats a credential.
func TestOptionsENG1(t *testing.T) {
	t.Parallel()
	for _, o := range []api.Options{
		{}, {URL: "conductor:8080"}, {URL: "ftp://host"}, {URL: "http://user:" + token + "@host"}, {URL: "http://host?key=" + token},
		{URL: "http://" + token + "%zz"}, {URL: "http://host", Timeout: -1}, {URL: "http://host", Attempts: -1}, {URL: "http://host", MaxAnswer: -1},
	} {
		if _, err := api.New(o); err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%+v: got %v", o, err)
		}
	}
}

// FuzzAnswer: whatever Conductor answers, a call returns, its error is short, and no credential is
// in it.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"workflowId":"1","tasks":[{"taskId":"2"}]}`))
	f.Add(200, []byte("00000000-0000-4000-8000-000000000001"))
	f.Add(400, []byte(`{"message":"`+token+`","validationErrors":[{"path":1}]}`))
	f.Add(200, []byte(base64.StdEncoding.EncodeToString([]byte(token))+token))
	value := authorization(f)
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		c := newClient(t, api.Options{URL: "http://host", Attempts: 1, MaxAnswer: 1 << 16, Authorization: value,
			Transport: &answers{status: status, body: body}})
		ctx := t.Context()
		_, err := c.Workflow(ctx, "1", true)
		_, err2 := c.Start(ctx, api.StartRequest{})
		_, err3 := c.Correlated(ctx, "n", "1")
		_, err4 := c.Poll(ctx, "type", "worker", 1, 0)
		for _, err := range []error{err, err2, err3, err4, c.Health(ctx), c.Pause(ctx, "1")} {
			if err != nil && (strings.Contains(err.Error(), token) || len(err.Error()) > 2000) {
				t.Errorf("got %d bytes: %.200q", len(err.Error()), err)
			}
		}
	})
}

// TestCredentialSEC1: each try has the credential of its time, and no error shows it.
func TestCredentialSEC1(t *testing.T) {
	t.Parallel()
	now := "first-of-two"
	s := conductortest.Start(t, conductortest.Authorized("second-of-two"))
	c, err := api.New(api.Options{URL: s.URL(), Credential: func() string { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Correlated(t.Context(), "runlog", "run-1"); !api.HasStatus(err, http.StatusUnauthorized) || strings.Contains(err.Error(), now) {
		t.Errorf("got %v, want status 401", err)
	}
	now = "second-of-two"
	if _, err := c.Correlated(t.Context(), "runlog", "run-1"); err != nil {
		t.Error(err)
	}
}
