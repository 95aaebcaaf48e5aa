package runner_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/client"
)

// BenchmarkNoopSteps executes runs of 50 steps that do nothing, 16 at a time, on one node.
func BenchmarkNoopSteps(b *testing.B) {
	const steps, atOnce = 50, 16
	bed := newRealBed(b)
	p := bed.start(b)
	var list []string
	for i := range steps {
		list = append(list, fmt.Sprintf(`{"step_key":"s%d","executor":"noop"}`, i))
	}
	m := p.manifest(strings.Join(list, ","))
	began, n := time.Now(), 0
	for b.Loop() {
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				if _, status := p.begin(m); status != "success" {
					b.Error(status)
				}
			})
		}
		all.Wait()
		n += atOnce * steps
	}
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "steps/s")
}

// BenchmarkResume resumes a run of 5,000 steps that waits for its last but one: at the runner that
// has begun it, and at one that knows nothing of it.
func BenchmarkResume(b *testing.B) {
	b.Run("known", func(b *testing.B) { resume(b, 0) })
	b.Run("unknown", func(b *testing.B) { resume(b, 1) })
}

func resume(b *testing.B, memoryBytes int64) {
	const steps = 5_000
	bed := newRealBed(b)
	o := bed.options(b, bed.srv.Client(client.Options{}))
	o.MemoryBytes = memoryBytes
	p := bed.run(b, o)
	var list []string
	for i := range steps - 2 {
		list = append(list, fmt.Sprintf(`{"step_key":"s%d","executor":"noop"}`, i))
	}
	m := p.manifest(strings.Join(list, ",") + `,{"step_key":"B","step_type":"compute",` + contractB + `},{"step_key":"C","executor":"noop","depends_on":["B"]}`)
	var resumes time.Duration
	for b.Loop() {
		id, status := p.begin(m)
		_, _, stepRuns := p.steps(id)
		p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
		began := time.Now()
		if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); status != "waiting" || got["status"] != "success" {
			b.Fatal(status, got)
		}
		resumes += time.Since(began)
	}
	b.ReportMetric(float64(resumes.Milliseconds())/float64(b.N), "ms/resume")
}
