package list

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"runlog/projector/list/listtest"
	"runlog/projector/run"
)

// listed is how many runs BenchmarkList lists: `make bench-list` lists a million.
var listed = flag.Int("listed", 100_000, "runs that BenchmarkList lists")

// benchList makes runs as a cluster does that works for many: all of them were RUNNING once, few
// still are, and few have failed.
func benchList(b *testing.B) *listBed {
	l := newListBed(b)
	const batch = 1000
	for first := 0; first < *listed; first += batch {
		made := make([]listtest.Run, batch)
		for i := range made {
			n := first + i
			made[i] = listtest.Run{
				ID: fmt.Sprintf("run_2026-02-11_%08d", n), Tenant: fmt.Sprint("tenant_", n%20), Project: fmt.Sprint("proj_", n%7),
				Env: fmt.Sprint("env_", n%3), Plan: fmt.Sprint("plan_", n%50), Version: fmt.Sprint(n % 4), Status: run.Running,
				CreatedAt: int64(n + 1), StartedAt: int64(n + 2),
			}
			if n%10 == 0 {
				made[i].Labels = map[string]string{"team": fmt.Sprint("team_", n/10%30), "tier": fmt.Sprint(n / 10 % 3)}
			}
		}
		l.make(b, made...)
		var moves []*run.Change
		for i := range made {
			r := &made[i]
			if r.CreatedAt%1000 == 0 {
				continue
			}
			if r.Status = run.Completed; r.CreatedAt%100 == 1 {
				r.Status = run.Failed
			}
			moves = append(moves, &run.Change{Run: runOf(r), Before: run.Running, Now: snapshotOf(r)})
		}
		l.fold(b, moves...)
		l.runs = l.runs[:0] // the database has them
	}
	return l
}

// BenchmarkList reads a page of 100 of a list of many runs, the first one and one from the middle
// on.
func BenchmarkList(b *testing.B) {
	l := benchList(b)
	for _, c := range []struct {
		name   string
		filter run.Filter
	}{
		{"all", run.Filter{}},
		{"tenant", run.Filter{TenantID: "tenant_3"}},
		{"tenant+project", run.Filter{TenantID: "tenant_3", ProjectID: "proj_2"}},
		{"tenant+project+environment", run.Filter{TenantID: "tenant_3", ProjectID: "proj_2", EnvironmentID: "env_1"}},
		{"plan", run.Filter{PlanID: "plan_3"}},
		{"status=COMPLETED", run.Filter{Statuses: run.StatusSet(run.Completed)}},
		{"status=RUNNING", run.Filter{Statuses: run.StatusSet(run.Running)}},
		{"status=PAUSED,none", run.Filter{Statuses: run.StatusSet(run.Paused)}},
		{"tenant+status", run.Filter{TenantID: "tenant_0", Statuses: run.StatusSet(run.Failed)}},
		{"tenant+project+status", run.Filter{TenantID: "tenant_0", ProjectID: "proj_2", Statuses: run.StatusSet(run.Failed)}},
		{"tenant+plan", run.Filter{TenantID: "tenant_3", PlanID: "plan_3"}},
		{"plan+status", run.Filter{PlanID: "plan_0", Statuses: run.StatusSet(run.Failed)}},
		{"project", run.Filter{ProjectID: "proj_2"}},
		{"tenant+plan,none", run.Filter{TenantID: "tenant_3", PlanID: "plan_4"}},
		{"tenant+statuses", run.Filter{TenantID: "tenant_0", Statuses: run.StatusSet(run.Failed, run.Running)}},
		{"tenant+statuses,many", run.Filter{TenantID: "tenant_0", Statuses: run.StatusSet(run.Failed, run.Completed, run.Paused)}},
		{"plan+version", run.Filter{PlanID: "plan_3", PlanVersion: "1"}},
		{"label", run.Filter{Labels: []run.Label{{Key: "team", Value: "team_7"}}}},
		{"label+label", run.Filter{Labels: []run.Label{{Key: "team", Value: "team_7"}, {Key: "tier", Value: "1"}}}},
		{"label+status", run.Filter{Labels: []run.Label{{Key: "tier", Value: "1"}}, Statuses: run.StatusSet(run.Completed)}},
		{"label+tenant,none", run.Filter{Labels: []run.Label{{Key: "team", Value: "team_7"}}, TenantID: "tenant_3"}},
		{"prefix,few+tenant", run.Filter{RunIDPrefix: "run_2026-02-11_00012", TenantID: "tenant_3"}},
		{"prefix,many+tenant", run.Filter{RunIDPrefix: "run_2026", TenantID: "tenant_3"}},
		{"tenant+started", run.Filter{TenantID: "tenant_3", StartedBefore: int64(*listed / 2)}},
		{"started,none", run.Filter{StartedAfter: 1 << 60}},
		{"tenant+oldest", run.Filter{TenantID: "tenant_3", OldestFirst: true}},
		{"tenant+status+oldest", run.Filter{TenantID: "tenant_0", Statuses: run.StatusSet(run.Failed), OldestFirst: true}},
	} {
		for _, place := range []struct {
			name string
			from []byte
		}{{"first", nil}, {"middle", appendPlace(nil, int64(*listed/2), "")}} {
			if c.filter.OldestFirst && place.from != nil {
				continue // It is a place in the other order.
			}
			b.Run(c.name+"/"+place.name, func(b *testing.B) {
				b.ReportAllocs()
				runtime.LockOSThread() // for threadTime
				defer runtime.UnlockOSThread()
				found := 0
				var took []time.Duration
				for b.Loop() {
					began := threadTime()
					page, _, err := read(l.db, &c.filter, place.from, 100, maxLooks)
					if err != nil {
						b.Fatal(err)
					}
					found, took = len(page), append(took, threadTime()-began)
				}
				slices.Sort(took)
				b.ReportMetric(float64(found), "runs/page")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-cpu-µs")
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-cpu-µs")
			})
		}
	}
}

// BenchmarkCount counts runs up to the limit of the API.
func BenchmarkCount(b *testing.B) {
	l := benchList(b)
	for name, f := range map[string]run.Filter{
		"all": {}, "tenant": {TenantID: "tenant_3"}, "tenant+status": {TenantID: "tenant_0", Statuses: run.StatusSet(run.Failed)},
		"tenant+plan,none": {TenantID: "tenant_3", PlanID: "plan_4"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := Count(l.db, &f, 10_000); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
