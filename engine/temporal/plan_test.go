package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	"runlog/engine/executor"
	"runlog/engine/plan"
)

// fetched returns a plan for one reference, and refuses every other one.
type fetched struct{ ref plan.Ref }

var errOther = errors.New("the store does not have it")

func (f fetched) Fetch(_ context.Context, ref plan.Ref) (*plan.Plan, error) {
	if ref != f.ref {
		return nil, errOther
	}
	return new(plan.Plan), nil
}

// TestKnownPlanIsWhatAFetchGivesPLAN7: a worker takes a plan that it knows for no other reference
// than that of its fetch, and not once that has expired.
func TestKnownPlanIsWhatAFetchGivesPLAN7(t *testing.T) {
	t.Parallel()
	ref := plan.Ref{URI: "file:///plans/p.json", SHA256: "ab", SchemaVersion: "v1.2", PlanID: "p", PlanVersion: "1", SizeBytes: 1204}
	a := &activities{o: Options{Plans: fetched{ref}}}
	if _, err := a.plan(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*plan.Ref){
		"place":       func(r *plan.Ref) { r.URI = "file:///etc/passwd" },
		"scheme":      func(r *plan.Ref) { r.URI = "gs://nowhere/x" },
		"size":        func(r *plan.Ref) { r.SizeBytes = 5 },
		"compression": func(r *plan.Ref) { r.Compression = plan.CompressionGzip },
		"hint":        func(r *plan.Ref) { r.MigrationHint = &plan.MigrationHint{SourceVersion: "new"} },
	} {
		other := ref
		change(&other)
		if _, err := a.plan(t.Context(), other); !errors.Is(err, errOther) {
			t.Errorf("another %s: %v, want what a fetch says", name, err)
		}
	}
	ref.ExpiresAt = time.Unix(1, 0)
	if _, err := a.plan(t.Context(), ref); !isInvalid(err) {
		t.Errorf("an expired reference: %v, want PLAN_INVALID", err)
	}
}

func isInvalid(err error) bool {
	_, ok := errors.AsType[*plan.InvalidError](err)
	return ok
}

// noise returns names that no compression makes shorter.
func noise(n int) (list []string) {
	names := rand.NewChaCha8([32]byte{})
	for range n {
		list = append(list, fmt.Sprintf("%016x%016x%016x%016x", names.Uint64(), names.Uint64(), names.Uint64(), names.Uint64()))
	}
	return list
}

// TestPlanWithTheBeginENG3: the begin of a workflow has the plan with it, or why it can never be
// executed, unless the plan is so large that the answer might be too large for Temporal.
func TestPlanWithTheBeginENG3(t *testing.T) {
	t.Parallel()
	document := func(kind string, steps int) parsed {
		var list []string
		for _, id := range noise(steps) {
			list = append(list, fmt.Sprintf(`{"stepId":%q,"type":%q}`, id, kind))
		}
		return parsed(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[` + strings.Join(list, ",") + `]}`)
	}
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"noop": executor.Noop{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		plans plan.Provider
		is    func(*loaded) bool
		fails bool
	}{
		"small":   {document("noop", 1), func(l *loaded) bool { return l != nil && l.Error == nil && len(l.Bones) > 0 }, false},
		"large":   {document("noop", 8000), func(l *loaded) bool { return l == nil }, false},
		"no such": {document("nope", 1), func(l *loaded) bool { return strings.Contains(string(l.Error), "PLAN_UNSUPPORTED") }, false},
		"invalid": {parsed(`{}`), func(l *loaded) bool { return strings.Contains(string(l.Error), "PLAN_INVALID") }, false},
		"foreign queue": {parsed(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"a","type":"noop","dispatch":{"taskQueue":"tq-isolation-rival-prod"}}]}`),
			func(l *loaded) bool { return strings.Contains(string(l.Error), "TASK_QUEUE_FOREIGN") }, false},
		"away": {fetched{plan.Ref{PlanID: "another"}}, func(l *loaded) bool { return l == nil }, true},
	} {
		a := &activities{o: Options{Plans: tt.plans, Registry: registry, Beat: time.Minute}}
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		var l *loaded
		env.RegisterActivityWithOptions(func(ctx context.Context) (err error) {
			l, _, err = a.load(ctx, plan.Ref{}, Scope{TenantID: "acme", EnvironmentID: "prod"})
			return err
		},
			activity.RegisterOptions{Name: "load"})
		if _, err := env.ExecuteActivity("load"); !tt.is(l) || (err != nil) != tt.fails {
			t.Errorf("%s: got %.200v, %v", name, l, err)
		}
	}
}

// TestPlanHasRoomWithTheBeginENG3: a plan that fits by itself is left out of the begin if the
// outputs that conditions look at take its room. Why a plan cannot be executed always fits.
func TestPlanHasRoomWithTheBeginENG3(t *testing.T) {
	t.Parallel()
	steps := map[string]Step{"a": {Output: make(json.RawMessage, maxSeenOutput)}, "b": {Output: make(json.RawMessage, maxSeenOutput)}}
	for name, tt := range map[string]struct {
		plan *loaded
		kept bool
	}{
		"fits":       {&loaded{Bones: make(packed, maxAlong-2*maxSeenOutput)}, true},
		"too large":  {&loaded{Bones: make(packed, maxAlong-2*maxSeenOutput+1)}, false},
		"its error":  {&loaded{Error: make(json.RawMessage, maxAlong)}, true},
		"not loaded": {nil, false},
	} {
		b := begun{Cursor: Cursor{Steps: steps}, Plan: tt.plan}
		if b.fit(); (b.Plan != nil) != tt.kept {
			t.Errorf("%s: the plan is kept: %v", name, b.Plan != nil)
		}
	}
}

// parsed is the text of a plan.
type parsed string

func (p parsed) Fetch(context.Context, plan.Ref) (*plan.Plan, error) {
	got, _, err := plan.Parse([]byte(p), plan.Options{})
	return got, err
}
