package temporal

import (
	"context"
	"errors"
	"testing"
	"time"

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
