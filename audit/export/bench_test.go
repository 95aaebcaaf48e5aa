package export

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// typical makes the records of some runs, mixed, whose events are as bench makes them: 512 bytes of
// payload.
func typical(n int) []*Record {
	const runs = 100
	var chains [runs]contract.Digest
	log := make([]byte, 0, 256)
	for i := range 200 {
		log = append(log, "the stage table warehouse rows "[i%31])
	}
	var out []*Record
	at := time.Date(2026, 2, 11, 10, 30, 0, 0, time.UTC).UnixNano()
	for i := range n {
		run, seq := i%runs, uint64(i/runs+1)
		r := &Record{Event: contract.Event{
			Type: contract.StepCompleted, RunID: fmt.Sprintf("run_bench_3k9x_%d_%d", run%8, run), TenantID: fmt.Sprintf("tenant_bench_%d", run%8),
			ProjectID: "proj_marketing", EnvironmentID: "prod", PlanID: "plan_nightly_analytics", PlanVersion: "3.4",
			StepID: fmt.Sprintf("build_model_%d", seq/2), LogicalAttemptID: 1, EngineAttemptID: 1, EmittedAt: at + int64(i)*1000,
			EmittedBy: "activity-worker-3",
			Payload: fmt.Appendf(nil, `{"status":"SUCCESS","artifacts":[{"uri":"s3://acme-artifacts/prod/%d/manifest.json","kind":"dbt-manifest","sha256":"%064x","sizeBytes":%d}],"metrics":{"rowsWritten":%d},"completedAt":"2026-02-11T10:30:00.123Z","log":"%s"}`,
				run, i*7919, i%100000, i, log),
		}, RunSeq: seq, PersistedAt: at + int64(i/50)*1_000_003}
		r.EventID = contract.EventID{1, 2, 3, 4, 5, 6, 0x70, 7, 0x80, 8, 9, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i), 1}
		salt := sha256.Sum256(r.EventID[:])
		r.PayloadSalt = contract.Salt(salt[:16])
		r.IdempotencyKey = contract.DeriveKey(r.Contract, r.RunID, r.StepID, 1, r.EngineAttemptID, r.Type, r.PlanID, r.PlanVersion)
		seal(r, &chains[run])
		out = append(out, r)
	}
	return out
}

// seal works out the digests of a record and moves the chain of its run on.
func seal(r *Record, chain *contract.Digest) {
	r.PayloadDigest, r.RecordDigest = r.Digests(r.PayloadSalt, r.AppendedBy, r.Original)
	r.ChainDigest = contract.ChainDigest(*chain, r.RecordDigest, r.RunSeq, r.PersistedAt)
	*chain = r.ChainDigest
}

func BenchmarkWrite(b *testing.B) {
	records := typical(10_000)
	for _, f := range []Format{JSONLines, CSV, Parquet} {
		b.Run(FormatNames()[f-1], func(b *testing.B) {
			b.ReportAllocs()
			var size counter
			w, err := NewWriter(f, &size)
			if err != nil {
				b.Fatal(err)
			}
			var tally Tally
			for i := 0; b.Loop(); i++ {
				tally.Add(records[i%len(records)])
				if err := w.Write(records[i%len(records)]); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Close("x"); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(size)/float64(tally.Count), "B/event")
		})
	}
}

// exported writes records to a file, with a manifest as the cluster of the tests signs it.
func exported(tb testing.TB, f Format, records []*Record, change ...func(*proof.Export)) []byte {
	tb.Helper()
	var out bytes.Buffer
	w, err := NewWriter(f, &out)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range records {
		if err := w.Write(r); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(manifestOf(tb, signer(tb, 1), records, change...)); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func signer(tb testing.TB, key byte) *proof.Signer {
	tb.Helper()
	s, err := proof.NewSigner([16]byte{7}, [32]byte{key})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// manifestOf is the signed statement of a window that has just these records.
func manifestOf(tb testing.TB, s *proof.Signer, records []*Record, change ...func(*proof.Export)) string {
	tb.Helper()
	var tally Tally
	e := proof.Export{Cluster: [16]byte{7}, From: 1, To: 2, Position: 9}
	for i, r := range records {
		if tally.Add(r); i == 0 {
			e.From = r.PersistedAt
		}
		e.To = r.PersistedAt + 1
	}
	e.CompleteThrough, e.Count, e.Digest = e.To+5, tally.Count, tally.Digest
	for _, c := range change {
		c(&e)
	}
	note, err := s.Sign(e.Statement())
	if err != nil {
		tb.Fatal(err)
	}
	return note
}

// BenchmarkTake is what an event costs between the connection and the writer: decoded, taken and
// tallied.
func BenchmarkTake(b *testing.B) {
	message := &runlogv1.ExportEventsResponse{}
	for _, r := range typical(512) {
		message.Events = append(message.Events, wire(r))
	}
	raw, err := proto.Marshal(message)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var r Record
	var tally Tally
	for b.Loop() {
		var m runlogv1.ExportEventsResponse
		if err := proto.Unmarshal(raw, &m); err != nil {
			b.Fatal(err)
		}
		for _, e := range m.GetEvents() {
			if err := r.Take(e); err != nil {
				b.Fatal(err)
			}
			tally.Add(&r)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tally.Count), "ns/event")
}

func BenchmarkVerify(b *testing.B) {
	records := typical(50_000)
	for _, f := range []Format{JSONLines, CSV, Parquet} {
		b.Run(FormatNames()[f-1], func(b *testing.B) {
			file := exported(b, f, records)
			b.ReportAllocs()
			events := 0
			for b.Loop() {
				report, err := Verify(b.Context(), f, bytes.NewReader(file), int64(len(file)))
				if err != nil || len(report.Faults) > 0 {
					b.Fatal(report, err)
				}
				events += int(report.Events)
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(len(file))*float64(b.N)/b.Elapsed().Seconds()/1e6, "MB/s")
		})
	}
}

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
