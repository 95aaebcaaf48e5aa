// Package listtest is a naive model of the list of runs.
package listtest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"runlog/projector/run"
)

// Run is a run as a naive filter sees it.
type Run struct {
	ID                                  string
	Tenant, Project, Env, Plan, Version string
	Status                              run.Status
	Labels                              map[string]string
	CreatedAt                           int64
	StartedAt                           int64 // 0: it has not started
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
	return same(f.TenantID, r.Tenant) && (len(f.Tenants) == 0 || slices.Contains(f.Tenants, r.Tenant)) && same(f.ProjectID, r.Project) && same(f.EnvironmentID, r.Env) && same(f.PlanID, r.Plan) && same(f.PlanVersion, r.Version) &&
		strings.HasPrefix(r.ID, f.RunIDPrefix) && f.Statuses.Match(r.Status) && r.labelled(f.Labels) && r.started(f) &&
		(f.CreatedAfter == 0 || r.CreatedAt > f.CreatedAfter) && (f.CreatedBefore == 0 || r.CreatedAt < f.CreatedBefore)
}

func (r *Run) labelled(want []run.Label) bool {
	return !slices.ContainsFunc(want, func(l run.Label) bool {
		value, has := r.Labels[l.Key]
		return !has || value != l.Value
	})
}

func (r *Run) started(f *run.Filter) bool {
	if f.StartedAfter == 0 && f.StartedBefore == 0 {
		return true
	}
	return r.StartedAt > 0 && (f.StartedAfter == 0 || r.StartedAt > f.StartedAfter) &&
		(f.StartedBefore == 0 || r.StartedAt < f.StartedBefore)
}

// Named is a run that a list has, and its status.
type Named struct {
	RunID  string
	Status run.Status
}

// Names returns the runs of a page.
func Names(page []run.Listed) (names []Named) {
	for i := range page {
		names = append(names, Named{page[i].RunID, page[i].Status})
	}
	return names
}

// Filtered returns what a filter wants of runs, in its order. The runs are in the order of the
// list.
func Filtered(runs []Run, f *run.Filter) (want []Named) {
	for i := range runs {
		if r := &runs[i]; r.Matches(f) {
			want = append(want, Named{r.ID, r.Status})
		}
	}
	if f.OldestFirst {
		slices.Reverse(want)
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
		bound := func(label string, of func(*Run) int64) int64 {
			r := rapid.SampledFrom(runs).Draw(t, label)
			at := max(0, of(&r)+int64(rapid.IntRange(-1, 1).Draw(t, label+" shift")))
			return rapid.SampledFrom([]int64{0, 0, 0, at}).Draw(t, label+" set")
		}
		some := run.Statuses(rapid.Uint16Range(0, 1<<9-1).Draw(t, "statuses") &^ 1)
		one := run.StatusSet(rapid.SampledFrom([]run.Status{run.Pending, run.Running, run.Completed, run.Cancelled, run.Failed}).Draw(t, "status"))
		f := run.Filter{
			TenantID:      of("tenant", func(r *Run) string { return r.Tenant }),
			ProjectID:     of("project", func(r *Run) string { return r.Project }),
			EnvironmentID: of("environment", func(r *Run) string { return r.Env }),
			PlanID:        of("plan", func(r *Run) string { return r.Plan }),
			PlanVersion:   of("version", func(r *Run) string { return r.Version }),
			Statuses:      rapid.SampledFrom([]run.Statuses{0, 0, one, one, some}).Draw(t, "of statuses"),
			CreatedAfter:  bound("after", func(r *Run) int64 { return r.CreatedAt }),
			CreatedBefore: bound("before", func(r *Run) int64 { return r.CreatedAt }),
			StartedAfter:  bound("started after", func(r *Run) int64 { return r.StartedAt }),
			StartedBefore: bound("started before", func(r *Run) int64 { return r.StartedAt }),
			OldestFirst:   rapid.Bool().Draw(t, "oldest first"),
		}
		if f.TenantID == "" && rapid.IntRange(0, 2).Draw(t, "by tenants") == 0 {
			for range rapid.IntRange(1, 3).Draw(t, "tenants") {
				r := rapid.SampledFrom(runs).Draw(t, "tenant of")
				f.Tenants = append(f.Tenants, r.Tenant)
			}
			slices.Sort(f.Tenants)
			f.Tenants = slices.Compact(append(f.Tenants, "zz of nobody"))
		}
		if rapid.IntRange(0, 3).Draw(t, "by prefix") == 0 {
			id := of("prefix", func(r *Run) string { return r.ID })
			f.RunIDPrefix = id[:rapid.IntRange(0, len(id)).Draw(t, "prefix bytes")]
		}
		for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "labels") {
			labels := rapid.SampledFrom(runs).Draw(t, "labels of").Labels
			l := run.Label{Key: "none", Value: "none"}
			if len(labels) > 0 {
				l.Key = rapid.SampledFrom(slices.Sorted(maps.Keys(labels))).Draw(t, "label")
				l.Value = labels[l.Key]
			}
			f.Labels = append(f.Labels, l)
		}
		return f
	})
}
