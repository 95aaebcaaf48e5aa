package runner_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestOtherEngineTypesENG1: a runner executes nothing of another engine's run in its queue, and
// leaves the run there.
func TestOtherEngineTypesENG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOtherEngineTypesENG1)
}

func testOtherEngineTypesENG1(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	ref := b.plan(t, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"count"}]}`))
	other := "temporal"
	for id, engineType := range map[string]*string{"other": &other, "none": nil} {
		if _, err := p.c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{
			RunRequestId: id, RunId: id, TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue, EngineType: engineType, PlanRef: ref,
		}); err != nil {
			t.Fatal(err)
		}
	}
	bubble.Until(t, "a refusal of both runs", func() bool {
		now, err := p.c.ListQueuedRuns(t.Context(), &runlogv1.ListQueuedRunsRequest{TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue})
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for _, r := range now.GetRuns() {
			if r.GetStartAttempts() > 0 && r.GetState() != runlogv1.QueuedRunState_LEASED {
				refused++
			}
		}
		return refused == 2
	})
	for _, id := range []string{"other", "none"} {
		if got := b.types(t, id); !slices.Equal(got, []string{"RunQueued"}) || b.count(id, "A") != 0 {
			t.Errorf("run %s has %q, and A was executed %d times", id, got, b.count(id, "A"))
		}
	}
}

// TestResumeOfForeignResumeATT5: a run that another writer has resumed, while a step waits, waits
// as before. It can be attested and resumed, and cancelled. A run that is executed cannot be
// resumed.
func TestResumeOfForeignResumeATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testResumeOfForeignResumeATT5)
}

func testResumeOfForeignResumeATT5(t *testing.T) {
	b, let := newBed(t), make(chan struct{})
	p := b.play(t, holding(let))
	m := p.manifest(`{"step_key":"first"},{"step_key":"B","step_type":"compute",` + contractB + `},{"step_key":"hold"}`)
	foreign := func() string {
		id, _ := p.begin(m)
		p.signal(id, "RESUME", "")
		b.append(t, id, m, func(r events.Run) (*runlogv1.EventWrite, error) {
			return r.Resumed(events.Cause{SignalID: "RESUME", Engine: 1}, nil)
		})
		return id
	}
	id := foreign()
	resume := "/api/runs/" + id + "/resume"
	if is, steps, _ := p.steps(id); is != "waiting" || !slices.Equal(steps, []string{"first=SUCCESS", "B=WAITING_FOR_ATTESTATION"}) {
		t.Errorf("the run is %s: %v", is, steps)
	}
	if got := p.ok("POST", resume, `{"initiated_by":"jed"}`); got["status"] != "waiting" {
		t.Errorf("a resume before the attestation: %v", got)
	}
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	done := make(chan any, 1)
	go func() {
		_, answer, _ := p.try("POST", resume, `{"initiated_by":"jed"}`)
		done <- answer["status"]
	}()
	b.happens(t, id, "StepStarted hold 1.1")
	if status, answer := p.call("POST", resume, `{"initiated_by":"ann"}`); status != http.StatusConflict {
		t.Errorf("a resume of a run that is executed: %d %v", status, answer)
	}
	close(let)
	if got := <-done; got != "success" {
		t.Errorf("resumed: %v", got)
	}
	b.clean(t, id)
	cancelled := foreign()
	p.signal(cancelled, "CANCEL", "")
	p.until(cancelled, "error")
}

// TestRetryAfterAPP9: an answer of 429 says when to try again.
func TestRetryAfterAPP9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryAfterAPP9)
}

func testRetryAfterAPP9(t *testing.T) {
	b, let := newBed(t), make(chan struct{})
	defer close(let)
	p := b.run(t, b.scripted(t, b.srv.Client(client.Options{MaxAttempts: 1}), holding(let)))
	if _, err := p.c.PutQueue(t.Context(), &runlogv1.PutQueueRequest{
		TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue,
		Settings: &runlogv1.QueueSettings{MaxRunning: new(uint64(1)), OnFull: runlogv1.OnFull_REJECT},
	}); err != nil {
		t.Fatal(err)
	}
	p.request(`{"step_key":"hold"}`)
	body := `{"manifest_id":"` + p.manifest(`{"step_key":"hold"}`) + `","initiated_by":"jed"}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.api.URL+"/api/runs", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusTooManyRequests || err != nil || seconds < 1 {
		t.Errorf("%d with Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}
