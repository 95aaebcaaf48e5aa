package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/plan"
	runlogv1 "runlog/proto/runlog/v1"
)

// planned is an adapter whose starts fail.
type planned struct {
	engine.Adapter
	err error
	got engine.RunContext
	ref plan.Ref
}

func (r *planned) StartRun(_ context.Context, ref plan.Ref, run engine.RunContext) (engine.EngineRunRef, error) {
	r.ref, r.got = ref, run
	return "ref", r.err
}

// TestStartsENG1: an adapter starts the runs of a reconciler. What never can be started ends the
// run with the code of the failure, and anything else is tried again (PLAN-2).
func TestStartsENG1(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tt := range []struct {
		err  error
		code string // of a permanent error
	}{
		{nil, ""}, {broken, ""}, {&plan.FetchError{URI: "s3://b/p", Err: broken}, ""}, {engine.ErrSkip, ""},
		{fmt.Errorf("start: %w", &plan.IntegrityError{}), plan.CodeIntegrity}, {&plan.VersionError{}, plan.CodeVersionMismatch},
	} {
		a := &planned{err: tt.err}
		run := &runlogv1.Run{RunId: "r", TenantId: "t", ProjectId: "p", EnvironmentId: "e", PlanRef: &runlogv1.PlanRef{PlanId: "plan", Uri: "s3://b/p"}}
		ref, err := engine.Starts(a).Start(t.Context(), engine.StartRequest{Run: run, Fence: 3, Attempt: 2})
		if ref != "ref" || a.ref.PlanID != "plan" || a.ref.URI != "s3://b/p" ||
			a.got != (engine.RunContext{RunID: "r", TenantID: "t", ProjectID: "p", EnvironmentID: "e", Fence: 3, Attempt: 2}) {
			t.Errorf("%v: %q %+v %+v", tt.err, ref, a.ref, a.got)
		}
		permanent, is := errors.AsType[*engine.PermanentError](err)
		if !errors.Is(err, tt.err) || is != (tt.code != "") || is && permanent.Code != tt.code {
			t.Errorf("%v becomes %v, want the code %q", tt.err, err, tt.code)
		}
	}
}

// TestCapabilitiesENG1: capabilities are the document that others read.
func TestCapabilitiesENG1(t *testing.T) {
	t.Parallel()
	c := engine.Capabilities{Adapter: "mock", SchemaVersion: "v1.2", Signals: []string{"PAUSE"}, Steps: []string{"executor:noop"}}
	body, err := json.Marshal(c)
	if err != nil || string(body) != `{"adapter":"mock","schemaVersion":"v1.2","signals":["PAUSE"],"steps":["executor:noop"],"reruns":false}` {
		t.Errorf("%s, %v", body, err)
	}
	if !c.Knows("PAUSE") || c.Knows("RESUME") {
		t.Error("signals are mixed up")
	}
}

// TestStartedTellsThePlanPLAN7: the RunStarted of an engine says of the plan what the run does.
func TestStartedTellsThePlanPLAN7(t *testing.T) {
	t.Parallel()
	ref := plan.Ref{URI: "s3://p", SHA256: "ab", SchemaVersion: "v1.2", PlanID: "p", PlanVersion: "1", SizeBytes: 5, Compression: "gzip",
		ExpiresAt: time.Unix(2e9, 0).UTC(), SchemaEvolutionPath: "v1.0 → v1.2",
		MigrationHint: &plan.MigrationHint{SourceVersion: "v1.0", TargetVersion: "v1.2", TransformScript: "s3://up"}}
	e, err := engine.Started(&runlogv1.Run{RunId: "run", TenantId: "acme", ProjectId: "p", EnvironmentId: "e", PlanRef: ref.Proto()}, "ref")
	if err != nil {
		t.Fatal(err)
	}
	var payload struct{ PlanRef plan.Ref }
	if err := json.Unmarshal(e.GetPayloadJson(), &payload); err != nil || !reflect.DeepEqual(payload.PlanRef, ref) {
		t.Errorf("%s, %v: want %+v", e.GetPayloadJson(), err, ref)
	}
}
