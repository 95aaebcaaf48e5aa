package runner_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"

	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestForgedAttestationsSEC9SEC10: what a producer may append does not take the place of an
// attestation: neither the end of a compute step, nor a wait whose contract asks for fewer
// attesters than the plan. The run ends before a later step begins.
func TestForgedAttestationsSEC9SEC10(t *testing.T) {
	t.Parallel()
	once, again := events.Attempt{Logical: 1, Engine: 1}, events.Attempt{Logical: 2, Engine: 1}
	completed := func(at events.Attempt) func(events.Run) (*runlogv1.EventWrite, error) {
		return func(r events.Run) (*runlogv1.EventWrite, error) { return r.StepCompleted("B", at, nil) }
	}
	waits := func(r events.Run) (*runlogv1.EventWrite, error) {
		return r.StepWaitingForAttestation("B", again, map[string]any{"contract": map[string]any{"approvals": 1}})
	}
	for name, x := range map[string]struct {
		before, after func(events.Run) (*runlogv1.EventWrite, error)
		attested      bool
	}{
		"completed before it waits":    {before: completed(once)},
		"completed in a later attempt": {after: completed(again)},
		"one attester in place of two": {after: waits, attested: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				b, m := newBed(t), ""
				var first sync.Once
				p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
					if write := req.(*runlogv1.AppendEventsRequest); write.GetEvents()[0].GetEventType() == "StepWaitingForAttestation" && x.before != nil {
						first.Do(func() { b.append(t, write.GetRunId(), m, x.before) })
					}
				}))
				m = p.manifest(strings.Replace(acceptance, `"notes":"n"`, `"approvals":2`, 1))
				id, _ := p.begin(m)
				if x.after != nil {
					b.append(t, id, m, x.after)
					_, _, stepRuns := p.steps(id)
					if x.attested {
						p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
					}
					b.append(t, id, m, func(r events.Run) (*runlogv1.EventWrite, error) {
						return r.Resumed(events.Cause{SignalID: "s", Engine: 1}, nil)
					})
					if _, err := p.c.RequeueRun(t.Context(), &runlogv1.RequeueRunRequest{RunId: id}); err != nil {
						t.Fatal(err)
					}
				}
				status := p.ok("GET", "/api/runs/"+id+"?wait=1h", "")["status"]
				if code, _ := b.failure(t, id); status != "error" || code != "PLAN_CHANGED" || b.count(id, "C") != 0 {
					t.Errorf("the run is %v with %q, C was executed %d times: %q", status, code, b.count(id, "C"), b.types(t, id))
				}
			})
		})
	}
}

// TestForgedEndsSEC9SEC10: what a producer may append neither skips a compute step, nor fails it,
// nor has it executed, though a later step begins with any end of it. The walk skips a compute step
// by the plan alone, or by a SKIP_STEP that the authority has accepted.
func TestForgedEndsSEC9SEC10(t *testing.T) {
	t.Parallel()
	type of = func(events.Run) (*runlogv1.EventWrite, error)
	once, again := events.Attempt{Logical: 1, Engine: 1}, events.Attempt{Logical: 2, Engine: 1}
	skipped := func(at events.Attempt, reasonCode string) of {
		return func(r events.Run) (*runlogv1.EventWrite, error) {
			e, err := r.StepSkipped("B", at, map[string]string{"reasonCode": reasonCode})
			e.CausedBySignalId = "none"
			return e, err
		}
	}
	failed := func(r events.Run) (*runlogv1.EventWrite, error) { return r.StepFailed("B", once, nil) }
	started := func(r events.Run) (*runlogv1.EventWrite, error) { return r.StepStarted("B", once, nil) }
	for name, x := range map[string]struct {
		before, after of
		waits         bool // the step waits for its attestation nevertheless
	}{
		"skipped before it waits":     {before: skipped(once, "OTHER")},
		"skipped while it waits":      {after: skipped(again, "OTHER")},
		"skipped as by an operator":   {before: skipped(once, "SIGNAL")},
		"skipped as by the plan":      {before: skipped(once, "DEPENDENCY"), waits: true},
		"skipped as by a condition":   {after: skipped(again, "CONDITION"), waits: true},
		"skipped in the last attempt": {after: skipped(events.Attempt{Logical: math.MaxUint32, Engine: 1}, "CONDITION")},
		"failed before it waits":      {before: failed},
		"failed while it waits":       {after: failed},
		"started before it waits":     {before: started},
		"started in the next attempt": {after: func(r events.Run) (*runlogv1.EventWrite, error) { return r.StepStarted("B", again, nil) }},
		"skipped by an operator":      {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				b := newBed(t)
				var first sync.Once
				p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
					if write := req.(*runlogv1.AppendEventsRequest); write.GetEvents()[0].GetEventType() == "StepWaitingForAttestation" && x.before != nil {
						first.Do(func() { b.append(t, write.GetRunId(), "p", x.before) })
					}
				}))
				b.request(t, "r", b.plan(t, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"count"},
					{"stepId":"B","type":"compute","dependsOn":["A"],"computeContract":{"executor":"x","inputs":[],"outputs":[],"verification":"operator_attest"}},
					{"stepId":"C","type":"count","dependsOn":["B"],"when":[{"step":"B","status":"ANY"}]}]}`)))
				status := p.ok("GET", "/api/runs/r?wait=1h", "")["status"]
				if x.before == nil && x.after == nil {
					if _, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: "r", SignalId: "s", SignalType: "SKIP_STEP", StepId: "B"}); err != nil {
						t.Fatal(err)
					}
					b.happens(t, "r", "StepSkipped B 2.1 by s")
					p.ok("POST", "/api/runs/r/resume", `{"initiated_by":"jed"}`)
					if p.until("r", "success"); b.count("r", "C") != 1 {
						t.Errorf("C was executed %d times: %q", b.count("r", "C"), b.types(t, "r"))
					}
					return
				}
				if x.after != nil {
					b.append(t, "r", "p", x.after)
					b.append(t, "r", "p", func(r events.Run) (*runlogv1.EventWrite, error) {
						return r.Resumed(events.Cause{SignalID: "s", Engine: 1}, nil)
					})
					if _, err := p.c.RequeueRun(t.Context(), &runlogv1.RequeueRunRequest{RunId: "r"}); err != nil {
						t.Fatal(err)
					}
					status = p.ok("GET", "/api/runs/r?wait=1h", "")["status"]
				}
				code, _ := b.failure(t, "r")
				if ends := status == "error" && code == "PLAN_CHANGED"; ends == x.waits || x.waits && status != "waiting" || b.count("r", "B")+b.count("r", "C") != 0 {
					t.Errorf("the run is %v with %q, C was executed %d times: %q", status, code, b.count("r", "C"), b.types(t, "r"))
				}
			})
		})
	}
}
