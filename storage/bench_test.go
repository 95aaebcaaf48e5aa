package storage_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// benchPayload is about 400 bytes of what a StepCompleted says.
const benchPayload = `{"artifacts":[{"uri":"s3://artifacts/prod/run_2026-02-11_abc123/build/manifest.json","kind":"dbt-manifest","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","sizeBytes":184320},{"uri":"s3://artifacts/prod/run_2026-02-11_abc123/build/run_results.json","kind":"dbt-run-results"}],"metrics":{"rowsRead":1829301,"cpuSeconds":12.75,"warehouse":"wh_etl"},"completedAt":"2026-02-11T10:31:12.500Z"}`

// benchEvents makes count valid events of a run, numbered from first on.
func benchEvents(b *testing.B, run string, first, count int) []contract.Event {
	b.Helper()
	wire := make([]*runlogv1.EventWrite, count)
	for i := range wire {
		wire[i] = &runlogv1.EventWrite{
			EventType: contract.StepCompleted, RunId: run,
			TenantId: "tenant_acme", ProjectId: "proj_marketing", EnvironmentId: "prod",
			PlanId: "plan_xyz", PlanVersion: "1.2", StepId: "build_models_" + strconv.Itoa(first+i),
			LogicalAttemptId: 1, EngineAttemptId: 2, EmittedBy: "activity-worker",
			EmittedAt:   &timestamppb.Timestamp{Seconds: 1770805800, Nanos: 123456789},
			PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(benchPayload)},
		}
	}
	events, err := contract.ValidateAll(wire, contract.Options{RunID: run})
	if err != nil {
		b.Fatal(err)
	}
	return events
}

// perEvent reports what one event cost.
func perEvent(b *testing.B, events int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
}

// BenchmarkEncodeAppend is what the goroutine of a request does before it queues.
func BenchmarkEncodeAppend(b *testing.B) {
	for _, count := range []int{1, 100} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			a := &storage.Append{RunID: "run", Events: benchEvents(b, "run", 0, count)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := storage.EncodeAppend(a); err != nil {
					b.Fatal(err)
				}
			}
			perEvent(b, count)
		})
	}
}

// benchLog is a log of proposals, each of so many requests of so many events, of runs in turn.
func benchLog(b *testing.B, proposals, requests, events, runs int) [][]byte {
	b.Helper()
	log := make([][]byte, proposals)
	next := 0
	for i := range log {
		p := storage.NewProposal(storagetest.Cluster, 1<<20)
		for range requests {
			run := fmt.Sprintf("run-%06d", next%runs)
			c, err := storage.EncodeAppend(&storage.Append{RunID: run, Events: benchEvents(b, run, next/runs*events, events)})
			if err != nil {
				b.Fatal(err)
			}
			p.Add(c)
			next++
		}
		log[i] = p.Seal(int64(i + 1))
	}
	return log
}

// benchShapes are loads as the batcher folds them: single events of many runs, and large batches.
var benchShapes = []struct{ proposals, requests, events, runs int }{
	{200, 100, 1, 256},
	{40, 8, 100, 16},
}

// BenchmarkApply is what the one goroutine of the state machine does for a proposal.
func BenchmarkApply(b *testing.B) {
	for _, s := range benchShapes {
		b.Run(fmt.Sprintf("%dx%d", s.requests, s.events), func(b *testing.B) {
			log := benchLog(b, s.proposals, s.requests, s.events, s.runs)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				l := openBench(b)
				b.StartTimer()
				for i, entry := range log {
					if _, err := l.Store.Apply(uint64(i+1), 1, entry); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			perEvent(b, s.proposals*s.requests*s.events)
		})
	}
}

// BenchmarkFollow is how fast the projector gets records to fold.
func BenchmarkFollow(b *testing.B) {
	for _, s := range benchShapes {
		b.Run(fmt.Sprintf("%dx%d", s.requests, s.events), func(b *testing.B) {
			l := openBench(b)
			for i, entry := range benchLog(b, s.proposals, s.requests, s.events, s.runs) {
				if _, err := l.Store.Apply(uint64(i+1), 1, entry); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			follower := l.Store.Follow(storage.Facts)
			for b.Loop() {
				for _, err := range follower.Log(0) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			perEvent(b, s.proposals*s.requests*s.events)
			b.StopTimer()
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func openBench(b *testing.B) *storagetest.Local {
	b.Helper()
	l, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), MemTableBytes: 64 << 20, CacheBytes: 128 << 20})
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// BenchmarkWindow is how fast an export reads.
func BenchmarkWindow(b *testing.B) {
	for _, s := range benchShapes {
		b.Run(fmt.Sprintf("%dx%d", s.requests, s.events), func(b *testing.B) {
			l := openBench(b)
			for i, entry := range benchLog(b, s.proposals, s.requests, s.events, s.runs) {
				if _, err := l.Store.Apply(uint64(i+1), 1, entry); err != nil {
					b.Fatal(err)
				}
			}
			st, _, err := l.Store.PositionRange(0, math.MaxInt64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				r, err := l.Store.OpenWindow(st, storage.WindowFilter{TenantID: "tenant_acme"}, storage.WindowCursor{})
				if err != nil {
					b.Fatal(err)
				}
				for more := true; more; {
					if _, more, err = r.Next(1000); err != nil {
						b.Fatal(err)
					}
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
			perEvent(b, s.proposals*s.requests*s.events)
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkVerify works out the chain of a run of 100,000 events again.
func BenchmarkVerify(b *testing.B) {
	l := openBench(b)
	const proposals, events = 100, 1000
	for i, entry := range benchLog(b, proposals, 1, events, 1) {
		if _, err := l.Store.Apply(uint64(i+1), 1, entry); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		v, err := l.Store.View("run-000000")
		if err != nil {
			b.Fatal(err)
		}
		got, err := v.Verify(b.Context())
		if err != nil || got.FirstBadSeq != 0 || got.Verified != proposals*events {
			b.Fatalf("%+v, %v", got, err)
		}
		_ = v.Close()
	}
	perEvent(b, proposals*events)
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
