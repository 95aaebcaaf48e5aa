package run

import (
	"fmt"
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
)

// plannedRun is a run of n steps that all succeed, with payloads as the execution contract shows
// them.
func plannedRun(n int) []storage.Record {
	t := newTape()
	t.add(contract.RunQueued, "", 1, `{}`)
	t.add(contract.RunStarted, "", 1, `{
		"status":"RUNNING",
		"engineRunRef":"temporal://default/interpreter-workflow/run_2026-02-11_abc123/f47ac10b",
		"engineType":"temporal",
		"planRef":{"uri":"s3://dvt-plans/prod/plan_xyz_v1.2.json","schemaVersion":"v1.2",
			"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
			"planId":"plan_xyz","planVersion":"1.2"},
		"context":{"tenantId":"tenant_acme","projectId":"proj_marketing","environmentId":"prod"},
		"startedAt":"2026-02-11T10:30:00.000Z"}`)
	for i := range n {
		step := fmt.Sprintf("model.marketing.step_%04d", i)
		t.add(contract.StepStarted, step, 1, `{"startedAt":"2026-02-11T10:30:01.250Z","worker":"w-17"}`)
		t.add(contract.StepCompleted, step, 1, fmt.Sprintf(`{"status":"SUCCESS","artifactRefs":[
			{"uri":"s3://artifacts/prod/run_2026-02-11_abc123/%s/manifest.json","kind":"dbt-manifest",
			"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","sizeBytes":18234}],
			"completedAt":"2026-02-11T10:31:07.125Z","metrics":{"rows":10233,"bytes":991823}}`, step))
	}
	t.add(contract.RunCompleted, "", 1, `{"completedAt":"2026-02-11T10:45:00.000Z"}`)
	return t.records
}

func benchmarkFold(b *testing.B, rs []storage.Record, fold func([]storage.Record) *Snapshot) {
	b.ReportAllocs()
	for b.Loop() {
		if s := fold(rs); s.Status != Completed {
			b.Fatal(s.Status)
		}
	}
	b.ReportMetric(float64(len(rs))*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkReduceAll(b *testing.B) {
	for _, steps := range []int{50, 2000, 50_000} {
		rs := plannedRun(steps)
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			benchmarkFold(b, rs, func(rs []storage.Record) *Snapshot { return ReduceAll(nil, rs) })
		})
	}
}

func BenchmarkReduce(b *testing.B) {
	for _, steps := range []int{50, 2000, 50_000} {
		rs := plannedRun(steps)
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			benchmarkFold(b, rs, func(rs []storage.Record) (s *Snapshot) {
				for i := range rs {
					s = Reduce(s, &rs[i])
				}
				return s
			})
		})
	}
}

func BenchmarkStored(b *testing.B) {
	for _, steps := range []int{50, 2000, 50_000} {
		s := ReduceAll(nil, plannedRun(steps))
		data := s.MarshalStored()
		b.Run(fmt.Sprintf("marshal/steps=%d", steps), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			var e Encoder
			buf := make([]byte, 0, len(data))
			for b.Loop() {
				buf = e.Append(buf[:0], s)
			}
		})
		b.Run(fmt.Sprintf("unmarshal/steps=%d", steps), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := UnmarshalStored(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("digest/steps=%d", steps), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				s.Digest()
			}
		})
	}
}
