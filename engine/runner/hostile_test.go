package runner_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// soon is far below the interval of sweeps.
const soon = 20 * time.Second

// between returns options of a client that calls a function before each call of a method.
func between(method string, do func(ctx context.Context, req any)) client.Options {
	return client.Options{MinBackoff: 5 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, name string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if strings.HasSuffix(name, "/"+method) {
				do(ctx, req)
			}
			return invoke(ctx, name, req, reply, cc, opts...)
		},
	)}}
}

// append appends an event as another writer.
func (b *bed) append(t testing.TB, runID, plan string, of func(events.Run) (*runlogv1.EventWrite, error)) {
	t.Helper()
	e, err := of(events.Run{ID: runID, Tenant: "acme", Project: "shop", Environment: "prod", Plan: plan, PlanVersion: "1", EmittedBy: "other"})
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := b.c.AppendEvents(context.Background(), &runlogv1.AppendEventsRequest{RunId: runID, Events: []*runlogv1.EventWrite{e}}); err != nil {
		t.Error(err)
	}
}

// TestOtherEventsOfStepsATT5: events of other types may name any step of the run, and one that the
// plan does not have. They decide nothing.
func TestOtherEventsOfStepsATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOtherEventsOfStepsATT5)
}

func testOtherEventsOfStepsATT5(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(acceptance)
	id, _ := p.begin(m)
	_, _, stepRuns := p.steps(id)
	for _, step := range []string{"A", "B", "C", "elsewhere"} {
		b.append(t, id, m, func(r events.Run) (*runlogv1.EventWrite, error) {
			return r.Event("StepMeasured", step, events.Attempt{Logical: 1, Engine: 1}, nil)
		})
		b.append(t, id, m, func(r events.Run) (*runlogv1.EventWrite, error) {
			return r.Event("StepMeasured", step, events.Attempt{Logical: 2, Engine: 1}, nil)
		})
	}
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" || b.count(id, "A") != 1 || b.count(id, "C") != 1 {
		t.Errorf("resumed: %v; A was executed %d times, C %d times", got, b.count(id, "A"), b.count(id, "C"))
	}
}

// TestLogDecidesEndsATT5: if another writer has ended a step, the log has its end, whatever this
// runner has found.
func TestLogDecidesEndsATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testLogDecidesEndsATT5)
}

func testLogDecidesEndsATT5(t *testing.T) {
	b := newBed(t)
	b.fail["A"] = 100
	m := ""
	var first sync.Once
	p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
		write := req.(*runlogv1.AppendEventsRequest)
		if write.GetEvents()[0].GetEventType() != "StepFailed" {
			return
		}
		first.Do(func() {
			b.append(t, write.GetRunId(), m, func(r events.Run) (*runlogv1.EventWrite, error) {
				return r.StepCompleted("A", events.Attempt{Logical: 1, Engine: 1}, nil)
			})
		})
	}))
	m = p.manifest(`{"step_key":"A"},{"step_key":"B","depends_on":["A"]}`)
	id, status := p.begin(m)
	if _, steps, _ := p.steps(id); status != "success" || !slices.Equal(steps, []string{"A=SUCCESS", "B=SUCCESS"}) {
		t.Errorf("the run is %s: %v", status, steps)
	}
}

// TestResumeBeforeReleaseATT5: a resume that comes while the worker before still has its lease is
// followed once the lease has ended.
func TestResumeBeforeReleaseATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testResumeBeforeReleaseATT5)
}

func testResumeBeforeReleaseATT5(t *testing.T) {
	b := newBed(t)
	let := make(chan struct{})
	requeued := make(chan struct{}, 100)
	opts := between("ReleaseLease", func(ctx context.Context, _ any) {
		select {
		case <-let:
		case <-ctx.Done():
		}
	})
	opts.DialOptions = append(opts.DialOptions, between("RequeueRun", func(context.Context, any) { requeued <- struct{}{} }).DialOptions...)
	p := b.startWith(t, opts)
	id, _ := p.begin(p.manifest(acceptance))
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	done := make(chan any, 1)
	began := time.Now()
	go func() {
		_, answer, _ := p.try("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`)
		done <- answer["status"]
	}()
	<-requeued
	time.Sleep(200 * time.Millisecond) // The call of RequeueRun ends.
	close(let)
	if got := <-done; got != "success" || time.Since(began) > soon {
		t.Errorf("resumed after %v: %v", time.Since(began), got)
	}
}

// TestPauseTakenBackSIG2: a RESUME that comes just before the runner's RunPaused takes the PAUSE
// back, and the run goes on.
func TestPauseTakenBackSIG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testPauseTakenBackSIG2)
}

func testPauseTakenBackSIG2(t *testing.T) {
	b := newBed(t)
	c := b.srv.Client(client.Options{})
	signal := func(id, signalType string) {
		res, err := c.SendSignal(context.Background(), &runlogv1.SendSignalRequest{RunId: id, SignalId: signalType, SignalType: signalType})
		if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
			t.Error(res, err)
		}
	}
	var paused, resumed sync.Once
	p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
		write := req.(*runlogv1.AppendEventsRequest)
		switch e := write.GetEvents()[0]; e.GetEventType() + " " + e.GetStepId() {
		case "StepCompleted A":
			paused.Do(func() { signal(write.GetRunId(), "PAUSE") })
		case "RunPaused ":
			resumed.Do(func() { signal(write.GetRunId(), "RESUME") })
		}
	}))
	id, status := p.begin(p.manifest(`{"step_key":"A"},{"step_key":"B"}`))
	if _, steps, _ := p.steps(id); status != "success" || !slices.Equal(steps, []string{"A=SUCCESS", "B=SUCCESS"}) {
		t.Errorf("the run is %s: %v", status, steps)
	}
}

// TestEarlyResumeATT4: an attestation resumes no run, though a RESUME was accepted before it.
func TestEarlyResumeATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testEarlyResumeATT4)
}

func testEarlyResumeATT4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(acceptance)
	signal := func(id, signalType, stepID string) {
		t.Helper()
		res, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: signalType, SignalType: signalType, StepId: stepID})
		if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
			t.Fatal(res, err)
		}
	}
	id, _ := p.begin(m)
	signal(id, "RESUME", "")
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	signal(id, "SKIP_STEP", "nowhere") // The runner looks at the run.
	next, _ := p.begin(m)
	signal(next, "CANCEL", "")
	p.until(next, "error") // It has looked.
	time.Sleep(500 * time.Millisecond)
	if got := b.types(t, id); slices.Contains(got, "RunResumed") {
		t.Errorf("events %q", got)
	}
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" {
		t.Errorf("resumed: %v", got)
	}
}

// TestOtherScopesSEC4: the API has the runs of its own tenant, project and environment alone. Those
// of others are answered like runs that do not exist.
func TestOtherScopesSEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOtherScopesSEC4)
}

func testOtherScopesSEC4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	engineType := runner.EngineType
	for _, scope := range [][3]string{{"evil", "shop", "prod"}, {"acme", "other", "prod"}, {"acme", "shop", "test"}} {
		id := strings.Join(scope[:], "-")
		if _, err := p.c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{
			RunRequestId: id, RunId: id, TenantId: scope[0], ProjectId: scope[1], EnvironmentId: scope[2], EngineType: &engineType,
			PlanRef: &runlogv1.PlanRef{PlanId: "p", PlanVersion: "1"},
		}); err != nil {
			t.Fatal(err)
		}
		for _, call := range [][3]string{
			{"GET", "/api/runs/%s", ""}, {"POST", "/api/runs/%s/resume", `{"initiated_by":"jed"}`}, {"POST", "/api/runs/%s/steps/s/attest", attestB},
		} {
			status, answer := p.call(call[0], strings.ReplaceAll(call[1], "%s", id), call[2])
			none, want := p.call(call[0], strings.ReplaceAll(call[1], "%s", "none"), call[2])
			if status != http.StatusNotFound || none != status || answer["error"] != want["error"] || len(answer) != len(want) {
				t.Errorf("%s %s: %d %v, and of none: %d %v", call[0], id, status, answer, none, want)
			}
		}
	}
	if status, answer := p.call("GET", "/api/runs/"+strings.Repeat("x", 2000), ""); status != http.StatusNotFound {
		t.Errorf("a long id: %d %v", status, answer)
	}
}

// TestRefusedAttestationsATT4: an attestation that the log cannot take is the caller's fault.
func TestRefusedAttestationsATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRefusedAttestationsATT4)
}

func testRefusedAttestationsATT4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, _ := p.begin(p.manifest(acceptance))
	_, _, stepRuns := p.steps(id)
	attest := "/api/runs/" + id + "/steps/" + stepRuns["B"] + "/attest"
	token := "ghp_" + strings.Repeat("a", 36)
	for name, notes := range map[string]string{"large": strings.Repeat("n", 100<<10), "secret": token} {
		body := strings.Replace(attestB, `"done"`, `"`+notes+`"`, 1)
		if status, answer := p.call("POST", attest, body); status != http.StatusUnprocessableEntity || strings.Contains(answer["error"].(string), token) {
			t.Errorf("%s: %d %v", name, status, answer)
		}
	}
	p.ok("POST", attest, attestB)
}

// TestRacingOutcomesATT4: of SUCCESS and FAIL that race, one is stored, and only FAIL ends the run.
func TestRacingOutcomesATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRacingOutcomesATT4)
}

func testRacingOutcomesATT4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(acceptance)
	for range 10 {
		id, _ := p.begin(m)
		_, _, stepRuns := p.steps(id)
		var racing sync.WaitGroup
		statuses := make([]int, 4)
		for i := range statuses {
			body := attestB
			if i%2 == 0 {
				body = strings.Replace(attestB, "SUCCESS", "FAIL", 1)
			}
			racing.Go(func() {
				var err error
				if statuses[i], _, err = p.try("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", body); err != nil {
					t.Error(err)
				}
			})
		}
		racing.Wait()
		winner := slices.Index(statuses, http.StatusOK)
		is, steps, _ := p.steps(id)
		want := [2]string{"error B=FAIL", "waiting B=SUCCESS"}[max(winner, 0)%2]
		if winner < 0 || is+" "+steps[1] != want {
			t.Errorf("statuses %v: the run is %s: %v", statuses, is, steps)
		}
		slices.Sort(statuses)
		if statuses[1] != http.StatusConflict || statuses[3] != http.StatusConflict {
			t.Errorf("statuses %v", statuses)
		}
	}
}

// TestEarlyAttestationATT4: an attestation that another writer has appended before the step waited
// has no effect (PRJ-8), and is the only one of the step run. The operator hears what to do.
func TestEarlyAttestationATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testEarlyAttestationATT4)
}

func testEarlyAttestationATT4(t *testing.T) {
	b := newBed(t)
	m := ""
	var first sync.Once
	p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
		write := req.(*runlogv1.AppendEventsRequest)
		if write.GetEvents()[0].GetEventType() != "StepWaitingForAttestation" {
			return
		}
		first.Do(func() {
			b.append(t, write.GetRunId(), m, func(r events.Run) (*runlogv1.EventWrite, error) {
				return r.StepAttested("B", events.Attempt{Logical: 1, Engine: 1}, map[string]any{"outcome": "SUCCESS"})
			})
		})
	}))
	m = p.manifest(acceptance)
	id, _ := p.begin(m)
	_, _, stepRuns := p.steps(id)
	status, answer := p.call("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	if text, _ := answer["error"].(string); status != http.StatusConflict || !strings.Contains(text, "SKIP_STEP") {
		t.Fatalf("%d %v: %q", status, answer, b.types(t, id))
	}
	if _, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: "s", SignalType: "SKIP_STEP", StepId: "B"}); err != nil {
		t.Fatal(err)
	}
	bubble.Until(t, "the step is skipped", func() bool { return slices.Contains(b.types(t, id), "StepSkipped B") })
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" {
		t.Errorf("resumed: %v: %q", got, b.types(t, id))
	}
}

// TestWaitingForNothingATT2: another writer has ended the step that a run waits for. The run waits
// for its operator, whose call is answered.
func TestWaitingForNothingATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testWaitingForNothingATT2)
}

func testWaitingForNothingATT2(t *testing.T) {
	b := newBed(t)
	m := ""
	var first sync.Once
	p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
		write := req.(*runlogv1.AppendEventsRequest)
		if write.GetEvents()[0].GetEventType() != "StepStarted" {
			return
		}
		first.Do(func() {
			at := events.Attempt{Logical: 1, Engine: 1}
			c := b.srv.Client(client.Options{})
			r := events.Run{ID: write.GetRunId(), Tenant: "acme", Project: "shop", Environment: "prod", Plan: m, PlanVersion: "1", EmittedBy: "other"}
			waits, err := r.StepWaitingForAttestation("A", at, map[string]any{"contract": nil})
			failed, failure := r.StepFailed("A", at, map[string]any{"error": map[string]any{"code": "X", "message": "x"}})
			if err != nil || failure != nil {
				t.Error(err, failure)
			}
			req := &runlogv1.AppendEventsRequest{RunId: r.ID, Events: []*runlogv1.EventWrite{waits, failed}}
			if _, err := c.AppendEvents(context.Background(), req); err != nil {
				t.Error(err)
			}
		})
	}))
	m = p.manifest(`{"step_key":"A"},{"step_key":"B","depends_on":["A"]}`)
	id, status := p.begin(m)
	if status != "waiting" {
		t.Errorf("the run is %s: %q", status, b.types(t, id))
	}
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "error" {
		t.Errorf("resumed: %v: %q", got, b.types(t, id))
	}
}
