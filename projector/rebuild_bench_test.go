package projector

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// wholeRun is a run of so many events, each a payload of about 400 bytes that compresses as those
// of producers do.
func wholeRun(rng *rand.Rand, i, events int) storagetest.Request {
	runID := fmt.Sprintf("run_2026-02-11_%08d", i)
	list := make([]contract.Event, events)
	for n := range list {
		e := storagetest.Event(runID, n/2)
		e.LogicalAttemptID = 1
		hex := fmt.Sprintf("%016x%016x%016x%016x", rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64())
		switch {
		case n == 0:
			e.Type, e.StepID = contract.RunStarted, ""
			e.Payload = fmt.Appendf(nil, `{"engineType":"temporal","planRef":{"uri":"s3://plans/p.json","sha256":"%s","planId":"p","planVersion":"1"},"startedAt":"2026-02-11T10:30:00.000Z"}`, hex)
		case n == events-1:
			e.Type, e.StepID = contract.RunCompleted, ""
			e.Payload = []byte(`{"status":"COMPLETED","completedAt":"2026-02-11T10:45:00.000Z"}`)
		case n%2 == 1:
			e.Type, e.StepID = contract.StepStarted, fmt.Sprint("build_model_", n/2)
			e.Payload = fmt.Appendf(nil, `{"taskQueue":"tq-data-prod-%d","inputDigest":"%s","startedAt":"2026-02-11T10:31:00.000Z","log":"%0200d"}`, n%32, hex, rng.Uint64())
		default:
			e.Type, e.StepID = contract.StepCompleted, fmt.Sprint("build_model_", n/2-1)
			e.Payload = fmt.Appendf(nil, `{"status":"SUCCESS","artifacts":[{"uri":"s3://artifacts/prod/%s/%s/manifest.json","kind":"dbt-manifest","sha256":"%s","sizeBytes":%d}],`+
				`"metrics":{"rowsWritten":10233},"completedAt":"2026-02-11T10:32:07.125Z","log":"%090d"}`, runID, e.StepID, hex, rng.IntN(1<<20), rng.Uint64())
		}
		list[n] = keyed(e)
	}
	return storagetest.Request{Append: &storage.Append{RunID: runID, Events: list}}
}

// BenchmarkRebuild rebuilds the projection of whole runs from scratch, on the disk, without other
// work. It also reports the processor time, which other load disturbs less.
func BenchmarkRebuild(b *testing.B) {
	const events = 200_000
	for _, each := range []int{5, 100} {
		b.Run(fmt.Sprintf("runs of %d", each), func(b *testing.B) {
			local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), CacheBytes: 128 << 20, MemTableBytes: 64 << 20})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = local.Close() }()
			rng := rand.New(rand.NewPCG(1, 1))
			clock := epoch.UnixNano()
			for first := 0; first < events/each; first += 800 / each {
				var requests []storagetest.Request
				for i := range 800 / each {
					requests = append(requests, wholeRun(rng, first+i, each))
				}
				clock += int64(time.Millisecond)
				if _, err := local.Propose(clock, requests); err != nil {
					b.Fatal(err)
				}
			}
			local.Entries = nil
			p, err := Open(Options{Dir: b.TempDir() + "/projection", Store: local.Store, Cluster: storagetest.Cluster, Fail: func(err error) { b.Error(err) }})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = p.Close() }()
			applied := local.Applied()
			if err := p.WaitPosition(b.Context(), applied.Position()); err != nil {
				b.Fatal(err)
			}
			var fold, compare time.Duration
			var before, after syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			for b.Loop() {
				began := time.Now()
				folded := began
				var compared time.Time
				g, err := p.Rebuild(b.Context(), func(g Progress) {
					switch g.Phase {
					case PhaseFold:
						folded = time.Now()
					case PhaseCompare:
						compared = time.Now()
					}
				})
				if err != nil || g.Differing > 0 {
					b.Fatal(g, err)
				}
				fold += folded.Sub(began)
				if compared.After(folded) {
					compare += compared.Sub(folded)
				}
			}
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
			cpu := time.Duration(after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano())
			all := float64(b.N) * events
			b.ReportMetric(all/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(all/fold.Seconds(), "folded/s")
			b.ReportMetric(compare.Seconds()/float64(b.N)*1e3, "compare-ms")
			b.ReportMetric(float64(cpu.Nanoseconds())/all, "cpu-ns/event")
		})
	}
}
