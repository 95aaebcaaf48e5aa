package list

import (
	"fmt"
	"testing"

	"runlog/projector/list/listtest"
	"runlog/projector/run"
)

// listedBench is how many runs BenchmarkList lists.
const listedBench = 100_000

// benchList makes runs as a cluster does that works for many: all of them were RUNNING once, few
// still are, and few have failed.
func benchList(b *testing.B) *listBed {
	l := newListBed(b)
	const batch = 1000
	for first := 0; first < listedBench; first += batch {
		made := make([]listtest.Run, batch)
		for i := range made {
			n := first + i
			made[i] = listtest.Run{
				ID: fmt.Sprintf("run_2026-02-11_%08d", n), Tenant: fmt.Sprint("tenant_", n%20), Project: fmt.Sprint("proj_", n%7),
				Env: fmt.Sprint("env_", n%3), Plan: fmt.Sprint("plan_", n%50), Status: run.Running, CreatedAt: int64(n + 1),
			}
		}
		l.make(b, made...)
		for i := range made {
			switch r := &l.runs[i]; {
			case r.CreatedAt%1000 == 0:
			case r.CreatedAt%100 == 1:
				l.move(b, i, run.Failed)
			default:
				l.move(b, i, run.Completed)
			}
		}
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
	} {
		for _, place := range []struct {
			name string
			from []byte
		}{{"first", nil}, {"middle", appendPlace(nil, listedBench/2, "")}} {
			b.Run(c.name+"/"+place.name, func(b *testing.B) {
				b.ReportAllocs()
				found := 0
				for b.Loop() {
					page, _, err := read(l.db, &c.filter, place.from, 100, maxLooks)
					if err != nil {
						b.Fatal(err)
					}
					found = len(page)
				}
				b.ReportMetric(float64(found), "runs/page")
			})
		}
	}
}
