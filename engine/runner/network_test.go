package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"runlog/client/events"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestLostAnswersATT4: an attestation whose answer the network loses is stored once, and the caller
// hears of it. So is each other call of a run.
func TestLostAnswersATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testLostAnswersATT4)
}

func testLostAnswersATT4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(acceptance)
	for _, outcome := range []string{"SUCCESS", "FAIL"} {
		for _, hostile := range []func(){func() { b.srv.LoseAnswers(2) }, func() { b.srv.DuplicateRequests(true) }} {
			id, status := p.begin(m)
			_, _, stepRuns := p.steps(id)
			hostile()
			got, answer := p.call("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", strings.Replace(attestB, "SUCCESS", outcome, 1))
			if status != "waiting" || got != http.StatusOK || answer["new_status"] != outcome {
				t.Errorf("%s: %d %v", outcome, got, answer)
			}
			want := map[string]string{"SUCCESS": "success", "FAIL": "error"}[outcome]
			if outcome == "SUCCESS" {
				b.srv.LoseAnswers(2)
				if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != want {
					t.Errorf("resumed: %v", got)
				}
			}
			b.srv.LoseAnswers(0)
			b.srv.DuplicateRequests(false)
			types := b.types(t, id)
			if is, _, _ := p.steps(id); is != want || slices.Index(types, "StepAttested B") < 0 || count(types, "StepAttested B") != 1 || count(types, "RunResumed") > 1 || b.count(id, "C") > 1 {
				t.Errorf("the run is %s: %q; C was executed %d times", is, types, b.count(id, "C"))
			}
		}
	}
}

func count(list []string, text string) (n int) {
	for _, x := range list {
		if x == text {
			n++
		}
	}
	return n
}

// strange makes an event that another writer may append to a run.
func strange(rng *rand.Rand, r events.Run) (*runlogv1.EventWrite, error) {
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	payload := json.RawMessage(pick(
		`{}`, `{"outcome":"SUCCESS"}`, `{"outcome":"FAIL"}`, `{"outcome":1,"Outcome":"SUCCESS"}`, `{"contract":null}`, `{"contract":{"executor":1,"timeoutMinutes":9e18}}`,
		`{"output":"`+strings.Repeat("x", 50<<10)+`"}`, `{"signalId":"s","signalType":"CANCEL"}`, `{"reason":[],"error":{"message":"m"}}`, `{"contract":[],"artifacts":"none","status":"SUCCESS"}`,
	))
	kind := pick(contract.StepStarted, contract.StepWaitingForAttestation, contract.StepCompleted, contract.StepFailed, contract.StepSkipped, contract.StepAttested,
		contract.RunStarted, contract.RunPaused, contract.RunResumed, contract.RunApproved, "RunMeasured", "StepMeasured")
	step := ""
	if strings.HasPrefix(kind, "Step") {
		step = pick("A", "B", "C", "Z", "step with a long name "+strings.Repeat("n", 100))
	}
	return r.Event(kind, step, events.Attempt{Logical: 1, Engine: uint32(1 + rng.IntN(3))}, payload)
}

// TestForeignWritersATT5: whatever events other writers append to a run, the API answers, and the
// runner goes on, also with other runs. It executes no step that the log has as completed, and no
// compute step.
func TestForeignWritersATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testForeignWritersATT5)
}

func testForeignWritersATT5(t *testing.T) {
	b := newBed(t)
	c := b.neverAgain(t)
	var mu sync.Mutex // for rng and m
	var stored atomic.Int64
	rng, m := rand.New(rand.NewPCG(7, 23)), ""
	p := b.startWith(t, between("AppendEvents", func(ctx context.Context, req any) {
		id := req.(*runlogv1.AppendEventsRequest).GetRunId()
		var list []*runlogv1.EventWrite
		mu.Lock()
		for range rng.IntN(3) {
			e, err := strange(rng, events.Run{ID: id, Tenant: "acme", Project: "shop", Environment: "prod", Plan: m, PlanVersion: "1", EmittedBy: "other"})
			if err == nil { // else the log refuses it too
				list = append(list, e)
			}
		}
		mu.Unlock()
		for _, e := range list {
			if _, err := c.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: id, Events: []*runlogv1.EventWrite{e}}); err == nil {
				stored.Add(1)
			}
		}
	}))
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	statuses := []string{"RUNNING", "WAITING_FOR_ATTESTATION", "SUCCESS", "FAIL", "SKIPPED"}
	for i := range rounds {
		made := p.manifest(fmt.Sprintf(`{"step_key":"A","input":%d},`, i) + strings.Join(strings.Split(acceptance, ",")[1:], ","))
		mu.Lock()
		m = made
		mu.Unlock()
		id, status := p.begin(made)
		for range 4 {
			run := p.ok("GET", "/api/runs/"+id, "")
			for _, x := range run["steps"].([]any) {
				s := x.(map[string]any)
				if !slices.Contains(statuses, s["status"].(string)) {
					t.Errorf("step %v", s)
				}
				got, answer := p.call("POST", "/api/runs/"+id+"/steps/"+s["step_run_id"].(string)+"/attest", attestB)
				if got != http.StatusOK && got != http.StatusConflict {
					t.Errorf("attest: %d %v", got, answer)
				}
			}
			got, answer, err := p.try("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`)
			if err != nil || got != http.StatusOK && got != http.StatusConflict {
				t.Fatalf("resume: %d %v %v: %q", got, answer, err, b.types(t, id))
			}
		}
		if b.count(id, "B") != 0 || b.count(id, "Z") != 0 {
			t.Errorf("run %s, which was %s, executed %v: %q", id, status, b.executed, b.types(t, id))
		}
		// A worker may have the run still, or a step may wait again.
		for end := time.Now().Add(bubble.Limit); ; time.Sleep(5 * time.Millisecond) {
			is, _, stepRuns := p.steps(id)
			if is == "success" || is == "error" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("run %s is %s in the end: %q", id, is, b.types(t, id))
			}
			for step, stepRun := range stepRuns {
				_, answer := p.call("POST", "/api/runs/"+id+"/steps/"+stepRun+"/attest", attestB)
				if text, _ := answer["error"].(string); strings.Contains(text, "SKIP_STEP") {
					_, _ = p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: "skip-" + step, SignalType: "SKIP_STEP", StepId: step})
				}
			}
			_, _ = p.call("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`)
		}
	}
	if stored.Load() < int64(rounds) {
		t.Errorf("%d events of others prove little", stored.Load())
	}
}
