// Package mock is a workflow engine in this process, for tests and demos (ENG-6). It is
// deterministic: what a Start does depends on the starts before it, and on the faults that were
// asked for.
//
//	m := mock.New()
//	m.Fail(2, errors.New("no worker"), "run-7") // the next two starts of run-7
//	r, err := engine.New(engine.Options{Client: c, Starter: m, Worker: "test"})
//
// Each start has at most one fault: the first one that was asked for and is left for its run.
//
// # Execution
//
// The Engine itself executes nothing: it has runs, as the server of a workflow engine does. An
// Adapter is one process beside it, with a worker that executes the plans of these runs:
//
//	a, err := m.Open(mock.Options{Log: c, Plans: plans, Executors: executors, Worker: "test"})
//	go a.Run(ctx)
//	ref, err := a.StartRun(ctx, planRef, engine.RunContext{RunID: "run-7"}) // the log has the run
//
// A worker executes one run at a time, in the order of their starts, and one step at a time. So the
// same plan with the same results leaves the same events in the same order. When the context of its
// worker ends, a run waits for another worker, which finds in the log what is done.
package mock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"runlog/engine"
)

// ErrNoAnswer is the error of a start that took effect, and whose answer is lost.
var ErrNoAnswer = errors.New("mock: the answer of the engine is lost")

// Engine is a workflow engine that has runs. It is safe for concurrent use.
type Engine struct {
	mu       sync.Mutex
	requests []engine.StartRequest
	has      map[string]*job // runs
	order    []*job          // those that have not ended, in the order of their begins
	begun    map[string]int  // how often the engine has begun a run
	faults   []*fault
	changed  chan struct{} // closed when a job may have become due
}

// fault is what becomes of some starts.
type fault struct {
	runs  []string      // none: of any run
	left  int           // starts; below 0: all
	err   error         // nil: hang
	late  bool          // the start takes effect before its error
	freed chan struct{} // of a hang: closed when it ends
}

var _ engine.Starter = (*Engine)(nil)

// New returns an engine without runs.
func New() *Engine {
	return &Engine{has: map[string]*job{}, begun: map[string]int{}, changed: make(chan struct{})}
}

// RefOf is the engine's reference of a run.
func RefOf(runID string) string { return refPrefix + runID }

const refPrefix = "mock/"

// Start starts a run, once.
func (e *Engine) Start(ctx context.Context, req engine.StartRequest) (string, error) {
	run := req.Run.GetRunId()
	e.mu.Lock()
	e.requests = append(e.requests, req)
	f := e.next(run)
	e.mu.Unlock()
	switch {
	case f == nil:
	case f.err != nil && !f.late:
		return "", f.err
	case f.err == nil:
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-f.freed:
		}
	}
	e.begin(run)
	if f != nil && f.late {
		return "", f.err
	}
	return RefOf(run), nil
}

// next returns the fault of a start of a run; nil: it has none.
func (e *Engine) next(run string) *fault {
	for _, f := range e.faults {
		if f.left != 0 && (len(f.runs) == 0 || slices.Contains(f.runs, run)) {
			f.left--
			return f
		}
	}
	return nil
}

func (e *Engine) begin(run string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.has[run] == nil {
		j := &job{runID: run, state: engine.RunPending, due: true, poked: make(chan struct{}, 1), attempts: map[attempted]uint32{}}
		e.has[run] = j
		e.order = append(e.order, j)
		e.begun[run]++
		e.notifyLocked()
	}
}

func (e *Engine) add(f *fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, f)
}

// Fail lets the next n starts fail with an error, of some runs or, without any, of all. They have
// no effect.
func (e *Engine) Fail(n int, err error, runs ...string) { e.add(&fault{runs: runs, left: n, err: err}) }

// LoseAnswers lets the next n starts take effect and return ErrNoAnswer, of some runs or, without
// any, of all.
func (e *Engine) LoseAnswers(n int, runs ...string) {
	e.add(&fault{runs: runs, left: n, err: ErrNoAnswer, late: true})
}

// Hang lets starts wait, of some runs or, without any, of all. A start that waits ends with its
// context, without effect. Free lets all that wait, and all later ones, go on.
func (e *Engine) Hang(runs ...string) (free func()) {
	f := &fault{runs: runs, left: -1, freed: make(chan struct{})}
	e.add(f)
	return sync.OnceFunc(func() { close(f.freed) })
}

// Forget lets the engine lose a run that it has. The next start begins the run again. A worker that
// executes the run goes on with it.
func (e *Engine) Forget(run string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.has, run)
	e.order = slices.DeleteFunc(e.order, func(j *job) bool { return j.runID == run })
}

// Begun tells how often the engine has begun a run: at most once, unless it was told to forget it.
func (e *Engine) Begun(run string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.begun[run]
}

// Requests returns the requests of all starts, in their order.
func (e *Engine) Requests() []engine.StartRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.requests)
}
