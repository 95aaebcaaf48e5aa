package projector

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// shortRuns makes a store of runs with five events each: those of a run in one proposal, or in
// three, between which waves of other runs come, so that every change of a status is one of its own
// for the list.
func shortRuns(b *testing.B, runs, wave int, spread bool) *storagetest.Local {
	b.Helper()
	local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), MemTableBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = local.Close() })
	clock := epoch.UnixNano()
	parts := [][]string{{contract.RunQueued, contract.RunStarted}, {contract.StepStarted, contract.StepCompleted}, {contract.RunCompleted}}
	if !spread {
		parts = [][]string{{contract.RunQueued, contract.RunStarted, contract.StepStarted, contract.StepCompleted, contract.RunCompleted}}
	}
	for first := 0; first < runs; first += wave {
		for _, types := range parts {
			var requests []storagetest.Request
			for i := first; i < first+wave; i++ {
				requests = append(requests, shortRun(i, types))
			}
			clock += int64(time.Millisecond)
			if _, err := local.Propose(clock, requests); err != nil {
				b.Fatal(err)
			}
		}
	}
	return local
}

func shortRun(i int, types []string) storagetest.Request {
	runID := fmt.Sprintf("run_2026-02-11_%08d", i)
	var events []contract.Event
	for _, eventType := range types {
		e := storagetest.Event(runID, 0)
		e.TenantID, e.ProjectID = fmt.Sprint("tenant_", i%20), fmt.Sprint("proj_marketing_", i%7)
		e.PlanID = fmt.Sprint("plan_", i%50)
		if e.Type = eventType; contract.ScopeOf(eventType) == contract.ScopeRun {
			e.StepID = ""
		}
		events = append(events, keyed(e))
	}
	return storagetest.Request{Append: &storage.Append{RunID: runID, Events: events}}
}

// BenchmarkRounds folds a store of short runs from its begin, in rounds, into a database in memory:
// what a run costs in addition to its events shows most there.
func BenchmarkRounds(b *testing.B) {
	const runs, wave = 20_000, 2_000
	for _, c := range []struct {
		name   string
		spread bool
	}{{"together", false}, {"spread", true}} {
		b.Run(c.name, func(b *testing.B) {
			local := shortRuns(b, runs, wave, c.spread)
			applied := local.Applied()
			b.ReportAllocs()
			for b.Loop() {
				p, err := Open(Options{
					Dir: "projection", FS: vfs.NewMem(), Store: local.Store, Cluster: storagetest.Cluster,
					Fail: func(err error) { b.Error(err) },
				})
				if err != nil {
					b.Fatal(err)
				}
				if err := p.WaitPosition(context.Background(), applied.Position()); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*runs), "µs/run")
		})
	}
}
