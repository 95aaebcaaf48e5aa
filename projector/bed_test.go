package projector

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/await"
	"runlog/testbed/bubble"
)

// epoch is the time of the first proposal.
var epoch = time.Date(2026, 2, 11, 10, 0, 0, 0, time.UTC)

// newFolded is what a round makes of a run.
func newFolded(r *storage.Run, before, now *run.Snapshot, weight int) *folded {
	return &folded{News: watch.News{Run: r, Before: before, Now: now}, weight: weight}
}

// pace is between two proposals in fake time, which passes only while every goroutine waits. The
// projector makes its rounds meanwhile.
const pace = time.Millisecond

// bed is a store, the log that feeds it, and a projector of it, on disks in memory. It is in a
// bubble of fake time.
type bed struct {
	t     testing.TB
	local *storagetest.Local
	opts  Options
	p     *Projector
	clock int64
	runs  map[string]int                   // events made of each run
	pace  time.Duration                    // after each proposal
	limit func(testing.TB) context.Context // of what must happen
}

func newBed(t testing.TB, change ...func(*Options)) *bed {
	t.Helper()
	local, err := storagetest.Open(storage.Options{FS: vfs.NewCrashableMem()})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, local: local, clock: epoch.UnixNano(), runs: map[string]int{}, pace: pace, limit: soon}
	b.opts = Options{
		Dir: "projection", FS: vfs.NewCrashableMem(), Cluster: storagetest.Cluster,
		Fail: func(err error) { t.Errorf("the projector gave up: %v", err) },
	}
	for _, c := range change {
		c(&b.opts)
	}
	b.open()
	t.Cleanup(b.close)
	return b
}

// realTime is for a bed outside of a bubble: nothing paces the proposals, and the limit of a test
// is that of its binary.
func (b *bed) realTime() *bed {
	b.pace, b.limit = 0, await.Context
	return b
}

func (b *bed) open() {
	b.t.Helper()
	b.opts.Store = b.local.Store
	p, err := Open(b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.p = p
}

func (b *bed) closeProjector() {
	b.t.Helper()
	if b.p == nil {
		return
	}
	if err := b.p.Close(); err != nil {
		b.t.Errorf("Close: %v", err)
	}
	b.p = nil
}

func (b *bed) close() {
	b.t.Helper()
	b.closeProjector()
	if err := b.local.Close(); err != nil {
		b.t.Errorf("close the store: %v", err)
	}
}

// reopen closes and opens the projector; between sees its files while it is closed.
func (b *bed) reopen(between ...func()) {
	b.t.Helper()
	b.closeProjector()
	for _, f := range between {
		f()
	}
	b.open()
}

func (b *bed) propose(requests ...storagetest.Request) storage.Position {
	b.t.Helper()
	b.clock += int64(time.Millisecond)
	outcomes, err := b.local.Propose(b.clock, requests)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, o := range outcomes {
		if o.Err != nil {
			b.t.Fatal(o.Err)
		}
	}
	applied := b.local.Applied()
	time.Sleep(b.pace)
	return applied.Position()
}

// more makes the next events of a run: a start, steps, and failures among them.
func (b *bed) more(runID string, count int) storagetest.Request {
	events := make([]contract.Event, count)
	for i := range events {
		n := b.runs[runID]
		b.runs[runID]++
		e := storagetest.Event(runID, n/2)
		switch {
		case n == 0:
			e.Type, e.StepID = contract.RunStarted, ""
		case n%2 == 1 && n%7 == 0:
			e.Type, e.Payload = contract.StepFailed, []byte(`{"error":{"code":"X","message":"m","retryable":true}}`)
		case n%2 == 1:
			e.Type, e.Payload = contract.StepCompleted, []byte(`{"artifacts":[{"uri":"s3://x","kind":"table"}]}`)
		}
		events[i] = keyed(e)
	}
	return storagetest.Request{Append: &storage.Append{RunID: runID, Events: events}}
}

// of makes one event of a type.
func (b *bed) of(runID, eventType string, attempt uint32) storagetest.Request {
	e := storagetest.Event(runID, 0)
	e.Type, e.StepID, e.LogicalAttemptID = eventType, "", attempt
	return storagetest.Request{Append: &storage.Append{RunID: runID, Events: []contract.Event{keyed(e)}}}
}

func setRef(runID string) storagetest.Request {
	return storagetest.Request{SetRef: &storagetest.SetRef{RunID: runID, Ref: "ref"}}
}

func keyed(e contract.Event) contract.Event {
	e.IdempotencyKey = contract.DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
	return e
}

// settle waits until everything is folded.
func (b *bed) settle() {
	b.t.Helper()
	applied := b.local.Applied()
	if err := b.p.WaitPosition(b.limit(b.t), applied.Position()); err != nil {
		b.t.Fatalf("the projector is at %d of %d: %v", b.p.Position(), applied.Position(), err)
	}
}

func (b *bed) snapshot(runID string) *run.Snapshot {
	b.t.Helper()
	v, err := b.local.Store.View(runID)
	if err != nil {
		b.t.Fatal(err)
	}
	defer v.Close()
	s, err := b.p.Snapshot(v)
	if err != nil {
		b.t.Fatal(err)
	}
	if s.LastEventSeq < v.Run.LastSeq {
		b.t.Fatalf("snapshot of %s at %d, the view shows %d", runID, s.LastEventSeq, v.Run.LastSeq)
	}
	return s
}

// check wants every run's snapshot to be the fold of its records, one by one, from the begin
// (PRJ-1), and its row in the list to say its status.
func (b *bed) check(what string) {
	b.t.Helper()
	b.settle()
	listed := map[string]run.Status{}
	page, err := b.p.List(run.Filter{}, nil, 10_000)
	if err != nil || page.Next != nil {
		b.t.Fatalf("%s: list: %v", what, err)
	}
	for _, l := range page.Runs {
		listed[l.RunID] = l.Status
	}
	for runID := range b.runs {
		r, err := b.local.Run(runID)
		if err != nil {
			b.t.Fatal(err)
		}
		records, err := b.local.Events(runID, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		want := run.Empty(r)
		for i := range records {
			want = run.Reduce(want, &records[i])
		}
		got := b.snapshot(runID)
		if !bytes.Equal(got.MarshalStored(), want.MarshalStored()) {
			b.t.Errorf("%s: %s is\n%s\nwant\n%s", what, runID, got.CanonicalJSON(), want.CanonicalJSON())
		}
		if listed[runID] != want.Status {
			b.t.Errorf("%s: %s is listed as %v, want %v", what, runID, listed[runID], want.Status)
		}
	}
	if len(listed) != len(b.runs) {
		b.t.Errorf("%s: %d runs in the list, want %d", what, len(listed), len(b.runs))
	}
	b.checkSeen(what)
	b.checkTree(what)
}

// load proposes entries of a few runs each.
func (b *bed) load(rng *rand.Rand, entries, runs int) {
	b.t.Helper()
	for range entries {
		var requests []storagetest.Request
		for range rng.IntN(3) {
			requests = append(requests, b.more(fmt.Sprint("run-", rng.IntN(runs)), 1+rng.IntN(6)))
		}
		if runID := fmt.Sprint("run-", rng.IntN(runs)); rng.IntN(10) == 0 && b.runs[runID] > 0 {
			requests = append(requests, setRef(runID))
		}
		b.propose(requests...)
	}
}

// soon returns the context of a call that ends in a moment of fake time.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), bubble.Limit)
	t.Cleanup(cancel)
	return ctx
}

// ended waits in a bubble for what must end.
func ended(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-soon(t).Done():
		t.Fatalf("%s does not end", what)
	}
}

// counted returns the value of a counter.
func counted(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	return metric(t, reg, name).GetCounter().GetValue()
}

// measured is how many values a histogram has.
func measured(t *testing.T, reg *prometheus.Registry, name string) uint64 {
	t.Helper()
	return metric(t, reg, name).GetHistogram().GetSampleCount()
}

func metric(t *testing.T, reg *prometheus.Registry, name string) *dto.Metric {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0]
		}
	}
	t.Fatalf("no metric %s", name)
	return nil
}

// lockedBuffer is a buffer for a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
