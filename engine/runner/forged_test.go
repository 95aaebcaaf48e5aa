package runner_test

import (
	"context"
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
