package runner_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count counts a text in the log.
func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// looks returns a sweep with its log, and counts the runs that it reads.
func (b *bed) looks(t *testing.T, most int) (look func(now time.Time), log *logged, reads *atomic.Int64) {
	t.Helper()
	reads, log = &atomic.Int64{}, &logged{}
	o := b.options(t, b.srv.Client(client.Options{DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, name string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(name, "/ReadEvents") {
				reads.Add(1)
			}
			return open(ctx, desc, cc, name, opts...)
		},
	)}}))
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	r, err := runner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	at := r.Looks(most)
	return func(now time.Time) {
		t.Helper()
		if err := at(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}, log, reads
}

const overdue, lowered = `msg="an attestation is overdue" alert=ATTESTATION_OVERDUE`, "is not overdue any more"

// TestOverdueATT7: a step that waits longer than its contract says raises an alert once, and
// nothing ends. The alert ends with the attestation.
func TestOverdueATT7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOverdueATT7)
}

func testOverdueATT7(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(acceptance)
	id, _ := p.begin(m)
	unlimited, _ := p.begin(p.manifest(strings.Replace(acceptance, `,"timeout_minutes":5`, "", 1)))
	look, log, _ := b.looks(t, 100)
	now := time.Now()
	look(now.Add(4 * time.Minute))
	if log.count(overdue) != 0 {
		t.Error("an alert before the time")
	}
	look(now.Add(6 * time.Minute))
	look(now.Add(7 * time.Minute))
	if log.count(overdue) != 1 || log.count("run="+id) != 1 {
		t.Errorf("%d alerts, want one", log.count(overdue))
	}
	for _, run := range []string{id, unlimited} {
		if is, steps, _ := p.steps(run); is != "waiting" || !slices.Equal(steps, []string{"A=SUCCESS", "B=WAITING_FOR_ATTESTATION"}) {
			t.Errorf("the run is %s: %v", is, steps)
		}
	}
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	look(now.Add(8 * time.Minute))
	look(now.Add(9 * time.Minute))
	if log.count(overdue) != 1 || log.count(lowered) != 1 {
		t.Errorf("%d alerts, of which %d have ended", log.count(overdue), log.count(lowered))
	}
	// One of a run that has ended meanwhile ends too.
	again, _ := p.begin(m)
	look(now.Add(10 * time.Minute))
	_, _, stepRuns = p.steps(again)
	p.ok("POST", "/api/runs/"+again+"/steps/"+stepRuns["B"]+"/attest", strings.Replace(attestB, "SUCCESS", "FAIL", 1))
	look(now.Add(11 * time.Minute))
	if log.count(overdue) != 2 || log.count(lowered) != 2 {
		t.Errorf("%d alerts, of which %d have ended", log.count(overdue), log.count(lowered))
	}
}

// TestOverdueMetricATT7: the metric counts the attestations that are overdue.
func TestOverdueMetricATT7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOverdueMetricATT7)
}

func testOverdueMetricATT7(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(acceptance)
	id, _ := p.begin(m)
	p.begin(m)
	o := b.options(t, b.srv.Client(client.Options{}))
	metrics := prometheus.NewRegistry()
	o.Registerer = metrics
	r, err := runner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	look, now := r.Looks(100), time.Now()
	want := func(after time.Duration, n int) {
		t.Helper()
		if err := look(t.Context(), now.Add(after)); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`
			# HELP runlog_runner_attestations_overdue Steps that wait for an attestation longer than their contracts say (ATTESTATION_OVERDUE).
			# TYPE runlog_runner_attestations_overdue gauge
			runlog_runner_attestations_overdue %d
		`, n)
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(text), "runlog_runner_attestations_overdue"); err != nil {
			t.Error(err)
		}
	}
	want(4*time.Minute, 0)
	want(6*time.Minute, 2)
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	want(7*time.Minute, 1)
	if _, err := runner.New(o); err != nil {
		t.Errorf("another runner of the registerer: %v", err)
	}
}

// TestSweepReadsNewsATT7: a sweep reads the events of a run once, and again if there are new ones.
// It gets to every run, though each look is bounded.
func TestSweepReadsNewsATT7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSweepReadsNewsATT7)
}

func testSweepReadsNewsATT7(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	m := p.manifest(acceptance)
	var ids []string
	for range 5 {
		id, _ := p.begin(m)
		ids = append(ids, id)
	}
	now := time.Now().Add(time.Hour)
	look, log, reads := b.looks(t, 100)
	look(now)
	for range 3 {
		look(now)
	}
	if reads.Load() != 5 || log.count(overdue) != 5 {
		t.Errorf("%d reads and %d alerts of 5 runs", reads.Load(), log.count(overdue))
	}
	b.append(t, ids[3], m, func(r events.Run) (*runlogv1.EventWrite, error) {
		return r.Event("RunMeasured", "", events.Attempt{Logical: 1, Engine: 1}, nil)
	})
	look(now)
	if reads.Load() != 6 {
		t.Errorf("%d reads after news of one run", reads.Load())
	}
	few, log, reads := b.looks(t, 2)
	for range 12 { // Each look begins with the last run of the one before.
		few(now)
	}
	for _, id := range ids {
		if n := log.count(fmt.Sprintf("%s run=%s", overdue, id)); n != 1 {
			t.Errorf("%d alerts of run %s", n, id)
		}
	}
	if reads.Load() != 5 || log.count(lowered) != 0 {
		t.Errorf("%d reads in small looks, %d alerts have ended", reads.Load(), log.count(lowered))
	}
}
