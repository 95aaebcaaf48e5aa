// Package listtest is a naive model of the list of runs.
package listtest

import (
	"cmp"
	"slices"

	"pgregory.net/rapid"

	"runlog/projector/run"
)

// Run is a run as a naive filter sees it.
type Run struct {
	ID                         string
	Tenant, Project, Env, Plan string
	Status                     run.Status
	CreatedAt                  int64
}

// Sort sorts runs in the order of the list.
func Sort(runs []Run) {
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// Matches reports whether a filter wants the run. It is the naive filter.
func (r *Run) Matches(f *run.Filter) bool {
	same := func(asked, has string) bool { return asked == "" || asked == has }
	return same(f.TenantID, r.Tenant) && same(f.ProjectID, r.Project) && same(f.EnvironmentID, r.Env) && same(f.PlanID, r.Plan) &&
		(f.Status == 0 || f.Status == r.Status) &&
		(f.CreatedAfter == 0 || r.CreatedAt > f.CreatedAfter) && (f.CreatedBefore == 0 || r.CreatedAt < f.CreatedBefore)
}

// Filtered returns what a filter wants of runs.
func Filtered(runs []Run, f *run.Filter) (want []run.Listed) {
	for i := range runs {
		if r := &runs[i]; r.Matches(f) {
			want = append(want, run.Listed{RunID: r.ID, Status: r.Status})
		}
	}
	return want
}

// SomeFilter draws filters with values of runs, and a few that no run has.
func SomeFilter(runs []Run) *rapid.Generator[run.Filter] {
	return rapid.Custom(func(t *rapid.T) run.Filter {
		of := func(label string, value func(*Run) string) string {
			switch rapid.IntRange(0, 4).Draw(t, label+" kind") {
			case 0, 1:
				return ""
			case 2:
				return rapid.SampledFrom([]string{"t", "p\x00", "\x00", "none"}).Draw(t, label)
			default:
				return value(&runs[rapid.IntRange(0, len(runs)-1).Draw(t, label)])
			}
		}
		bound := func(label string) int64 {
			at := rapid.SampledFrom(runs).Draw(t, label).CreatedAt + int64(rapid.IntRange(-1, 1).Draw(t, label+" shift"))
			return rapid.SampledFrom([]int64{0, 0, at}).Draw(t, label+" set")
		}
		return run.Filter{
			TenantID:      of("tenant", func(r *Run) string { return r.Tenant }),
			ProjectID:     of("project", func(r *Run) string { return r.Project }),
			EnvironmentID: of("environment", func(r *Run) string { return r.Env }),
			PlanID:        of("plan", func(r *Run) string { return r.Plan }),
			Status:        rapid.SampledFrom([]run.Status{0, 0, run.Pending, run.Running, run.Completed, run.Cancelled, run.Failed}).Draw(t, "status"),
			CreatedAfter:  bound("after"), CreatedBefore: bound("before"),
		}
	})
}
