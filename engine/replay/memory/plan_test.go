package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"runlog/engine/blob"
	"runlog/engine/plan"
	runlogv1 "runlog/proto/runlog/v1"
)

// counted counts the plans that are fetched.
type counted struct {
	plan.Provider
	fetches int
}

func (c *counted) Fetch(ctx context.Context, ref plan.Ref) (*plan.Plan, error) {
	c.fetches++
	return c.Provider.Fetch(ctx, ref)
}

// TestKnownPlanIsWhatAFetchGivesPLAN7: after a fetch of a plan, a reference with its digest gets
// the same answer as from a fetcher that has fetched nothing, whatever else the reference says.
func TestKnownPlanIsWhatAFetchGivesPLAN7(t *testing.T) {
	t.Parallel()
	allowed, body := t.TempDir(), []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"a","type":"noop"}]}`)
	for _, dir := range []string{allowed, t.TempDir()} {
		if err := os.WriteFile(filepath.Join(dir, "p.json"), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stores, err := blob.New(blob.Options{Allow: []string{"file://" + filepath.ToSlash(allowed)}})
	if err != nil {
		t.Fatal(err)
	}
	fetcher, err := plan.NewFetcher(plan.FetcherOptions{Source: stores})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(body)
	ref := func() *runlogv1.PlanRef {
		return &runlogv1.PlanRef{Uri: "file://" + filepath.ToSlash(allowed) + "/p.json", Sha256: hex.EncodeToString(sum[:]),
			SchemaVersion: "v1.2", PlanId: "p", PlanVersion: "1"}
	}
	fetches := &counted{Provider: fetcher}
	m := New(nil, fetches, 1<<20)
	for range 2 {
		if p, err := m.Plan(t.Context(), &runlogv1.Run{PlanRef: ref()}); err != nil || p.Step("a") == nil || fetches.fetches != 1 {
			t.Fatalf("plan %v after %d fetches, %v", p, fetches.fetches, err)
		}
	}
	for name, change := range map[string]func(*runlogv1.PlanRef){
		"place that is not allowed": func(r *runlogv1.PlanRef) { r.Uri = "file:///etc/passwd" },
		"unknown scheme":            func(r *runlogv1.PlanRef) { r.Uri = "gs://nowhere/x" },
		"no URI":                    func(r *runlogv1.PlanRef) { r.Uri = "" },
		"absent file":               func(r *runlogv1.PlanRef) { r.Uri += ".old" },
		"another size":              func(r *runlogv1.PlanRef) { r.SizeBytes = new(int64(5)) },
		"another compression":       func(r *runlogv1.PlanRef) { r.Compression = new("gzip") },
		"unknown compression":       func(r *runlogv1.PlanRef) { r.Compression = new("zip") },
		"another plan":              func(r *runlogv1.PlanRef) { r.PlanId = "q" },
		"another version":           func(r *runlogv1.PlanRef) { r.PlanVersion = "2" },
		"another schema":            func(r *runlogv1.PlanRef) { r.SchemaVersion = "v1.3" },
		"an expired reference":      func(r *runlogv1.PlanRef) { r.ExpiresAt = new("2026-01-01T00:00:00Z") },
		"a hint with faults":        func(r *runlogv1.PlanRef) { r.MigrationHint = new(runlogv1.MigrationHint) },
		"an unreadable schema":      func(r *runlogv1.PlanRef) { r.SchemaVersion = "new" },
	} {
		changed := ref()
		change(changed)
		_, want := fetcher.Fetch(t.Context(), plan.RefOf(&runlogv1.Run{PlanRef: changed}))
		wanted, ok := errors.AsType[plan.Failure](want)
		if !ok {
			t.Fatalf("%s: a fetch says %v, want a failure", name, want)
		}
		_, err := m.Plan(t.Context(), &runlogv1.Run{PlanRef: changed})
		if got, ok := errors.AsType[plan.Failure](err); !ok || got.Code() != wanted.Code() {
			t.Errorf("%s: %v, want %s", name, err, wanted.Code())
		}
	}
}
