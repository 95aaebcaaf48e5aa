package runner_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestTakenKeysATT5: another writer has stored an event under the key of one of the runner's, as
// the contract line 1.1 lets it. The runner's event can never be stored: the run ends, the runner
// goes on, and a step is executed once.
func TestTakenKeysATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testTakenKeysATT5)
}

func testTakenKeysATT5(t *testing.T) {
	b := newBed(t)
	b.fail["broken"] = 100
	var mu sync.Mutex
	taken := map[string]string{} // by run: the event
	p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
		write := req.(*runlogv1.AppendEventsRequest)
		e := write.GetEvents()[0]
		mu.Lock()
		first := taken[write.GetRunId()] == "" && e.GetEventType() == taken[e.GetPlanId()]
		if first {
			taken[write.GetRunId()] = e.GetEventType()
		}
		mu.Unlock()
		if !first {
			return
		}
		// The runner has read the run up to this event.
		_, err := b.srv.Client(client.Options{}).AppendEvents(context.Background(), &runlogv1.AppendEventsRequest{RunId: write.GetRunId(), Events: []*runlogv1.EventWrite{{
			EventType: "StepMeasured", RunId: write.GetRunId(), TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", PlanId: e.GetPlanId(), PlanVersion: "1",
			LogicalAttemptId: 1, EngineAttemptId: 1, IdempotencyKey: e.GetIdempotencyKey(), EmittedAt: timestamppb.Now(), ContractVersion: "1.1",
			StepId: "A",
		}}})
		if err != nil {
			t.Error(err)
		}
	}))
	for _, eventType := range []string{"RunStarted", "StepStarted", "StepCompleted", "StepSkipped", "StepWaitingForAttestation", "RunCompleted"} {
		m := p.manifest(`{"step_key":"A"},{"step_key":"` + eventType + `","step_type":"compute",` + contractB + `},{"step_key":"C","depends_on":["` + eventType + `"]}`)
		if eventType == "RunCompleted" {
			m = p.manifest(`{"step_key":"A"}`)
		}
		if eventType == "StepSkipped" {
			m = p.manifest(`{"step_key":"broken"},{"step_key":"B","depends_on":["broken"]}`)
		}
		mu.Lock()
		taken[m] = eventType
		mu.Unlock()
		id, status := p.begin(m)
		if status != "error" || b.count(id, "A") > 1 {
			t.Errorf("%s: the run is %s, A was executed %d times: %q", eventType, status, b.count(id, "A"), b.types(t, id))
		}
		if code, _ := b.failure(t, id); code != "RUN_INCONSISTENT" {
			t.Errorf("%s: the run has failed with %s", eventType, code)
		}
	}
}

// TestEndWithoutEffectATT5: another writer has appended the end of a step too early, without
// effect, and has begun the step again. The log takes no other end of that attempt, so the run
// ends, and the step is executed once.
func TestEndWithoutEffectATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testEndWithoutEffectATT5)
}

func testEndWithoutEffectATT5(t *testing.T) {
	b := newBed(t)
	m := ""
	var first sync.Once
	p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
		write := req.(*runlogv1.AppendEventsRequest)
		if write.GetEvents()[0].GetEventType() != "StepStarted" {
			return
		}
		first.Do(func() {
			for i, of := range []func(r events.Run, at events.Attempt) (*runlogv1.EventWrite, error){
				func(r events.Run, at events.Attempt) (*runlogv1.EventWrite, error) { return r.StepFailed("A", at, nil) },
				func(r events.Run, at events.Attempt) (*runlogv1.EventWrite, error) {
					return r.StepCompleted("A", at, nil)
				},
				func(r events.Run, at events.Attempt) (*runlogv1.EventWrite, error) {
					return r.StepStarted("A", at, nil)
				},
			} {
				b.append(t, write.GetRunId(), m, func(r events.Run) (*runlogv1.EventWrite, error) {
					return of(r, events.Attempt{Logical: 1, Engine: uint32(1 + i/2)})
				})
			}
		})
	}))
	m = p.manifest(`{"step_key":"A"}`)
	id, status := p.begin(m)
	if code, _ := b.failure(t, id); status != "error" || code != "RUN_INCONSISTENT" || b.count(id, "A") != 1 {
		t.Errorf("the run is %s with %s, A was executed %d times: %q", status, code, b.count(id, "A"), b.types(t, id))
	}
	if slices.Contains(b.types(t, id), "RunCompleted") {
		t.Errorf("events %q", b.types(t, id))
	}
}
