package projector

import (
	"fmt"
	"testing"
)

// listedBench is how many runs BenchmarkList lists.
const listedBench = 100_000

// benchList makes runs as a cluster does that works for many: all of them were RUNNING once, few
// still are, and few have failed.
func benchList(b *testing.B) *listBed {
	l := newListBed(b)
	const batch = 1000
	for first := 0; first < listedBench; first += batch {
		made := make([]listedRun, batch)
		for i := range made {
			n := first + i
			made[i] = listedRun{
				id: fmt.Sprintf("run_2026-02-11_%08d", n), tenant: fmt.Sprint("tenant_", n%20), project: fmt.Sprint("proj_", n%7),
				env: fmt.Sprint("env_", n%3), plan: fmt.Sprint("plan_", n%50), status: RunRunning, createdAt: int64(n + 1),
			}
		}
		l.make(b, made...)
		for i := range made {
			switch r := &l.runs[i]; {
			case r.createdAt%1000 == 0:
			case r.createdAt%100 == 1:
				l.move(b, i, RunFailed)
			default:
				l.move(b, i, RunCompleted)
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
		filter Filter
	}{
		{"all", Filter{}},
		{"tenant", Filter{TenantID: "tenant_3"}},
		{"tenant+project", Filter{TenantID: "tenant_3", ProjectID: "proj_2"}},
		{"tenant+project+environment", Filter{TenantID: "tenant_3", ProjectID: "proj_2", EnvironmentID: "env_1"}},
		{"plan", Filter{PlanID: "plan_3"}},
		{"status=COMPLETED", Filter{Status: RunCompleted}},
		{"status=RUNNING", Filter{Status: RunRunning}},
		{"status=PAUSED,none", Filter{Status: RunPaused}},
		{"tenant+status", Filter{TenantID: "tenant_0", Status: RunFailed}},
		{"tenant+project+status", Filter{TenantID: "tenant_0", ProjectID: "proj_2", Status: RunFailed}},
		{"tenant+plan", Filter{TenantID: "tenant_3", PlanID: "plan_3"}},
		{"plan+status", Filter{PlanID: "plan_0", Status: RunFailed}},
		{"project", Filter{ProjectID: "proj_2"}},
		{"tenant+plan,none", Filter{TenantID: "tenant_3", PlanID: "plan_4"}},
	} {
		for _, place := range []struct {
			name string
			from []byte
		}{{"first", nil}, {"middle", appendPlace(nil, listedBench/2, "")}} {
			b.Run(c.name+"/"+place.name, func(b *testing.B) {
				b.ReportAllocs()
				found := 0
				for b.Loop() {
					page, _, err := l.d.list(&c.filter, place.from, 100, maxListScan)
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
