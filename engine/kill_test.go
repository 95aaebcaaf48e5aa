package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"runlog/engine"
	"runlog/engine/mock"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

var rounds = flag.Int("engine.rounds", 1000, "rounds of TestKilledReconcilerQUE11; with a real server, a third of them")

// world is a queue, and what a test sees of it.
type world interface {
	engine.Client
	request(t testing.TB, n int) (runs []string)
	expire() // all leases
	stored(t testing.TB, run string) (ref string, state runlogv1.QueuedRunState_Value, events []string)
}

// errKilled is what a process gets from its calls after its end: it cannot do anything more.
var errKilled = errors.New("this process was killed")

// process is a reconciler's way to the log and the engine. It is killed, or paused, at a boundary
// between two steps: there is one before and one behind each call.
type process struct {
	world
	engine *mock.Engine

	mu     sync.Mutex
	left   int           // boundaries until it happens; below 0: never
	killed bool          // at the boundary, or from the start
	resume chan struct{} // not nil: it is paused there, until this is closed
	paused chan struct{} // closed when it is paused
}

// boundary is passed before and behind each call.
func (p *process) boundary() error {
	p.mu.Lock()
	here := p.left == 0
	p.left--
	if here && p.resume == nil {
		p.killed = true
	}
	killed := p.killed
	p.mu.Unlock()
	if here && p.resume != nil {
		close(p.paused)
		<-p.resume
	}
	if killed {
		return errKilled
	}
	return nil
}

func step[Req, Res any](ctx context.Context, p *process, call func(context.Context, Req) (Res, error), req Req) (res Res, err error) {
	if err := p.boundary(); err != nil {
		return res, err
	}
	got, err := call(ctx, req)
	if err := p.boundary(); err != nil {
		return res, err
	}
	return got, err
}

func (p *process) LeaseRuns(ctx context.Context, req *runlogv1.LeaseRunsRequest) (*runlogv1.LeaseRunsResponse, error) {
	return step(ctx, p, p.world.LeaseRuns, req)
}

func (p *process) RenewLease(ctx context.Context, req *runlogv1.RenewLeaseRequest) (*runlogv1.RenewLeaseResponse, error) {
	return step(ctx, p, p.world.RenewLease, req)
}

func (p *process) ReleaseLease(ctx context.Context, req *runlogv1.ReleaseLeaseRequest) (*runlogv1.ReleaseLeaseResponse, error) {
	return step(ctx, p, p.world.ReleaseLease, req)
}

func (p *process) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	return step(ctx, p, p.world.AppendEvents, req)
}

func (p *process) Start(ctx context.Context, req engine.StartRequest) (string, error) {
	return step(ctx, p, p.engine.Start, req)
}

// dequeue lets the process lease and start once.
func (p *process) dequeue(t testing.TB, opts engine.Options) ([]engine.Result, error) {
	opts.Client, opts.Starter, opts.Worker = p, p, "worker"
	r, err := engine.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return r.DequeueAndStart(t.Context())
}

// TestKilledReconcilerQUE11: reconcilers are killed and paused between any two steps, in 1,000
// rounds. The last one finishes, and the engine begins each run once.
func TestKilledReconcilerQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testKilledReconcilerQUE11)
}

func testKilledReconcilerQUE11(t *testing.T) {
	reached := map[string]int{}
	for seed := range *rounds {
		killRound(t, newFakeLog(), engine.Options{}, uint64(seed), reached)
		if t.Failed() {
			t.Fatalf("in round %d", seed)
		}
	}
	for _, what := range []string{"killed", "paused", "begun before the kill", "released before the kill"} {
		if reached[what] == 0 && *rounds >= 1000 {
			t.Errorf("no round has a reconciler %s: the test proves less than it says: %v", what, reached)
		}
	}
}

// killRound lets up to three reconcilers be killed or paused, and then one finish.
func killRound(t testing.TB, w world, opts engine.Options, seed uint64, reached map[string]int) {
	t.Helper()
	draw := rand.New(rand.NewPCG(seed, 11))
	m := mock.New()
	runs := w.request(t, 1+draw.IntN(3))
	if draw.IntN(4) == 0 {
		m.LoseAnswers(1 + draw.IntN(2))
	}
	if draw.IntN(4) == 0 {
		m.Fail(1+draw.IntN(2), errors.New("the engine is busy"))
	}
	resume, paused := make(chan struct{}), sync.WaitGroup{}
	for range 1 + draw.IntN(3) {
		p := &process{world: w, engine: m, left: draw.IntN(7 * len(runs)), paused: make(chan struct{})}
		if draw.IntN(3) > 0 {
			_, _ = p.dequeue(t, opts) // what it returns depends on where it was killed
			note(t, w, m, runs, reached)
		} else {
			p.resume = resume
			done := make(chan struct{})
			paused.Go(func() { defer close(done); _, _ = p.dequeue(t, opts) })
			select {
			case <-p.paused:
				reached["paused"]++
			case <-done: // before it came to the boundary
			}
		}
		w.expire()
	}
	last := &process{world: w, engine: m, left: -1}
	finish := func() {
		for range 10 { // The mock has faults left.
			results, err := last.dequeue(t, opts)
			if err != nil {
				t.Error(err)
			}
			if w.expire(); len(results) == 0 {
				return
			}
		}
	}
	finish()
	close(resume) // Those that were paused lag behind.
	paused.Wait()
	finish()
	for _, run := range runs {
		ref, state, events := w.stored(t, run)
		if begun := m.Begun(run); begun != 1 || ref != mock.RefOf(run) || state != runlogv1.QueuedRunState_RUNNING ||
			!slices.Equal(events, []string{contract.RunQueued, contract.RunStarted}) {
			t.Errorf("seed %d: %s was begun %d times, has the reference %q and the events %v, and is %s", seed, run, begun, ref, events, state)
		}
	}
}

// note notes how far a reconciler came with the first of its runs.
func note(t testing.TB, w world, m *mock.Engine, runs []string, reached map[string]int) {
	t.Helper()
	ref, state, events := w.stored(t, runs[0])
	reached["killed"]++
	released := state == runlogv1.QueuedRunState_RUNNING
	switch {
	case released != (ref != "") || released != slices.Contains(events, contract.RunStarted):
		t.Errorf("%s has the reference %q and the events %v, and is %s: a release is stored by halves", runs[0], ref, events, state)
	case released:
		reached["released before the kill"]++
	case m.Begun(runs[0]) > 0:
		reached["begun before the kill"]++
	}
}

// TestEachBoundaryQUE11: a reconciler with one run is killed at each boundary in turn.
func TestEachBoundaryQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testEachBoundaryQUE11)
}

func testEachBoundaryQUE11(t *testing.T) {
	var seen []string
	for n := 0; ; n++ {
		w, m := newFakeLog(), mock.New()
		run := w.request(t, 1)[0]
		killed := &process{world: w, engine: m, left: n}
		_, _ = killed.dequeue(t, engine.Options{})
		ref, _, events := w.stored(t, run)
		seen = append(seen, fmt.Sprint(m.Begun(run), ref != "", len(events)))
		w.expire()
		second, err := (&process{world: w, engine: m, left: -1}).dequeue(t, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ref, state, events := w.stored(t, run)
		if m.Begun(run) != 1 || ref != mock.RefOf(run) || state != runlogv1.QueuedRunState_RUNNING || strings.Join(events, " ") != "RunQueued RunStarted" {
			t.Errorf("killed at boundary %d: begun %d times, reference %q, events %v, %s", n, m.Begun(run), ref, events, state)
		}
		if done := len(second) == 0; done != (n >= 5) {
			t.Errorf("killed at boundary %d: the second one returned %v", n, second)
		}
		if !killed.killed {
			break
		}
	}
	// Before and behind: lease, start, release; then it is not killed.
	want := []string{"0 false 1", "0 false 1", "0 false 1", "1 false 1", "1 false 1", "1 true 2", "1 true 2"}
	if !slices.Equal(seen, want) {
		t.Errorf("the boundaries are %q, want %q", seen, want)
	}
}
