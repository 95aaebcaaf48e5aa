package temporal_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/engine"
	"runlog/engine/temporal"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestTakenEventsENG2: another writer stores an event under the key of one of the engine's, just
// before it, as the contract line 1.1 lets it. The event can never be stored, so the run fails, and
// each step is executed at most once. A step whose StepStarted is missing can end nevertheless.
func TestTakenEventsENG2(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]engine.RunState{
		"RunStarted": engine.RunFailed, "StepStarted": engine.RunCompleted, "StepCompleted": engine.RunFailed, "RunCompleted": engine.RunFailed,
	} {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"},{"stepId":"b","type":"test","dependsOn":["a"]}]}`)
			e := w.engine(&taking{Log: w.log, event: event})
			w.run(e)
			run := w.create("1")
			w.ends(e, w.start(e, run), want)
			if _, err := (&temporal.Sweeper{Engine: e, Runs: w.log, Tenant: "acme", Grace: 1}).Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.until(run, map[engine.RunState]string{engine.RunFailed: "RunFailed", engine.RunCompleted: "RunCompleted"}[want])
			if got := w.executions(run); len(slices.Compact(slices.Clone(got))) != len(got) {
				t.Errorf("executed %q", got)
			}
		})
	}
}

// taking is a log in which another writer takes the place of the first event of a type.
type taking struct {
	engine.Log
	event string
	once  sync.Once
}

func (l *taking) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	e := req.GetEvents()[0]
	var err error
	if e.GetEventType() == l.event {
		l.once.Do(func() {
			_, err = l.Log.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: req.GetRunId(), Events: []*runlogv1.EventWrite{{
				EventType: "StepMeasured", StepId: "a", RunId: req.GetRunId(), TenantId: e.GetTenantId(), ProjectId: e.GetProjectId(),
				EnvironmentId: e.GetEnvironmentId(), PlanId: e.GetPlanId(), PlanVersion: e.GetPlanVersion(), LogicalAttemptId: 1, EngineAttemptId: 1,
				IdempotencyKey: e.GetIdempotencyKey(), EmittedAt: timestamppb.Now(), ContractVersion: "1.1",
			}}})
		})
	}
	if err != nil {
		return nil, err
	}
	return l.Log.AppendEvents(ctx, req)
}
