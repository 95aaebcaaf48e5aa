// Package tests has the tests of the engine on real servers. They are a module of their own: the
// server is in it, with all of its dependencies, and the module of the engine has none of them.
package tests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/engine/dag"
	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/clienttest"
	runlogv1 "runlog/proto/runlog/v1"
)

// work counts the calls of steps.
type work struct {
	mu   sync.Mutex
	done map[string]int
}

// plan has a step that fails at its first attempt, between others.
func (w *work) plan(stop func(step string) bool) *dag.Plan {
	step := func(id string, after ...string) dag.Step {
		return dag.Step{ID: id, After: after, Retries: 1, Do: func(ctx context.Context, attempt uint32) error {
			name := fmt.Sprint(id, " ", attempt)
			w.mu.Lock()
			w.done[name]++
			w.mu.Unlock()
			if stop(name) {
				<-ctx.Done()
			}
			if name == "b 1" {
				return errors.New("busy")
			}
			return nil
		}}
	}
	return &dag.Plan{ID: "plan", Version: "1", Tenant: "acme", Project: "shop", Environment: "test",
		Steps: []dag.Step{step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")}}
}

func never(string) bool { return false }

// wantCompleted requires the whole history of a run of the plan, each event once.
func wantCompleted(t *testing.T, c *client.Client, run string, s *runlogv1.RunSnapshot) {
	t.Helper()
	if s.GetStatus() != runlogv1.RunStatus_COMPLETED || s.GetInconsistencyCount() != 0 || len(s.GetSteps()) != 4 {
		t.Errorf("the run is %v", s)
	}
	events := map[string]int{}
	for e, err := range c.ListEvents(t.Context(), &runlogv1.ListEventsRequest{RunId: run}) {
		if err != nil {
			t.Fatal(err)
		}
		events[strings.TrimSpace(fmt.Sprint(e.GetEventType(), " ", e.GetStepId()))]++
	}
	want := map[string]int{"RunStarted": 1, "RunCompleted": 1, "StepFailed b": 1, "StepStarted b": 2, "StepCompleted b": 1,
		"StepStarted a": 1, "StepCompleted a": 1, "StepStarted c": 1, "StepCompleted c": 1, "StepStarted d": 1, "StepCompleted d": 1}
	if fmt.Sprint(events) != fmt.Sprint(want) {
		t.Errorf("run %s has the events %v, want %v", run, events, want)
	}
}

// TestRun executes runs while answers are lost, writes arrive twice and the server is down.
func TestRun(t *testing.T) {
	srv := clienttest.Start(t)
	c := srv.Client(client.Options{MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond, MaxAttempts: 10_000})
	for name, fault := range map[string]func(){
		"none":       func() {},
		"lost":       func() { srv.LoseAnswers(5) },
		"down":       func() { srv.Down() },
		"refused":    func() { srv.Refuse("NO_LEADER", 1) },
		"clock":      func() { srv.StepClock(time.Hour) },
		"duplicates": func() { srv.DuplicateRequests(true) },
	} {
		fault()
		w := work{done: map[string]int{}}
		var s *runlogv1.RunSnapshot
		var err error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s, err = dag.Run(t.Context(), c, w.plan(never), name)
		}()
		srv.Up()
		<-ended
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantCompleted(t, c, name, s)
		if want := map[string]int{"a 1": 1, "b 1": 1, "b 2": 1, "c 1": 1, "d 1": 1}; fmt.Sprint(w.done) != fmt.Sprint(want) {
			t.Errorf("%s: done is %v, want %v", name, w.done, want)
		}
		srv.DuplicateRequests(false)
	}
}

// death kills an engine before one of its writes (even), or after it (odd).
type death struct {
	at   int
	kill func()

	mu     sync.Mutex
	writes int
}

func (d *death) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, cc, method, opts...)
	if err == nil && method == runlogv1.EventService_AppendStream_FullMethodName {
		stream = &dyingStream{stream, d}
	}
	return stream, err
}

type dyingStream struct {
	grpc.ClientStream
	*death
}

func (s *dyingStream) SendMsg(m any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes++; s.at == 2*(s.writes-1) {
		s.kill()
		return errors.New("killed")
	}
	return s.ClientStream.SendMsg(m)
}

func (s *dyingStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.at == 2*(s.writes-1)+1 {
		s.kill()
	}
	return err
}

// TestResume kills the engine before and after each of its writes, and resumes the run with another
// one. What the log says is done is not done again.
func TestResume(t *testing.T) {
	srv := clienttest.Start(t)
	c := srv.Client(client.Options{})
	for at := range 2 * 11 {
		run := fmt.Sprint("killed-", at)
		w := work{done: map[string]int{}}
		ctx, kill := context.WithCancel(t.Context())
		d := &death{at: at, kill: kill}
		dying := srv.Client(client.Options{DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(d.intercept)}})
		if _, err := dag.Run(ctx, dying, w.plan(never), run); err == nil && at < 2*10 {
			t.Errorf("%s: the engine has not noticed", run)
		}
		kill()
		done := map[string]bool{}
		if s, err := c.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: run}); err == nil {
			for _, step := range s.GetSnapshot().GetSteps() {
				done[step.GetStepId()] = step.GetStatus() == runlogv1.StepStatus_SUCCESS
			}
		}
		again := work{done: map[string]int{}}
		s, err := dag.Run(t.Context(), c, again.plan(never), run)
		if err != nil {
			t.Fatalf("%s: %v", run, err)
		}
		wantCompleted(t, c, run, s)
		for name := range again.done {
			if step, _, _ := strings.Cut(name, " "); done[step] {
				t.Errorf("%s: %s is done again", run, step)
			}
		}
	}
}

// TestKilledDuringAStep: the step that was under way is done again, as the same logical attempt.
func TestKilledDuringAStep(t *testing.T) {
	c := clienttest.Start(t).Client(client.Options{})
	w := work{done: map[string]int{}}
	ctx, kill := context.WithCancel(t.Context())
	if _, err := dag.Run(ctx, c, w.plan(func(name string) bool {
		if name == "d 1" {
			kill()
		}
		return name == "d 1"
	}), "run"); !errors.Is(err, context.Canceled) {
		t.Errorf("a killed engine: %v", err)
	}
	s, err := dag.Run(t.Context(), c, w.plan(never), "run")
	if err != nil {
		t.Fatal(err)
	}
	wantCompleted(t, c, "run", s)
	for _, step := range s.GetSteps() {
		if id := step.GetStepId(); id == "d" && (step.GetLogicalAttemptId() != 1 || step.GetEngineAttemptId() != 2 || w.done["d 1"] != 2) {
			t.Errorf("the step is %v, done %d times", step, w.done["d 1"])
		}
	}
}

// TestFailure: after its last attempt a step has failed, those after it are skipped, and the run
// has failed with it.
func TestFailure(t *testing.T) {
	c := clienttest.Start(t).Client(client.Options{})
	w := work{done: map[string]int{}}
	plan := w.plan(never)
	plan.Steps[1].Retries = 0
	for range 2 { // The second engine finds the run failed.
		s, err := dag.Run(t.Context(), c, plan, "run")
		if err != nil {
			t.Fatal(err)
		}
		if s.GetStatus() != runlogv1.RunStatus_FAILED || s.GetRootCause().GetStepId() != "b" || s.GetFailedSteps() != 1 || w.done["d 1"] != 0 || w.done["b 1"] != 1 {
			t.Errorf("the run is %v, done is %v", s, w.done)
		}
	}
}
