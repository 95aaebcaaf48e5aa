package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// WorkerClient is what a Worker needs of a client.Client. Its calls retry until their context ends.
type WorkerClient interface {
	Client
	SignalLog
	RequeueRun(context.Context, *runlogv1.RequeueRunRequest) (*runlogv1.RequeueRunResponse, error)
}

// Worker executes whole runs under their leases, in this process. Any number of them, in any number
// of processes, may have the same queue.
//
//	LeaseRuns ─► RunStarted ─► Execute: Follow, a step, Follow, a step … ─► ReleaseLease
//	    ▲                                     │ the lease is lost, an error    │ paused, waits
//	    ├──────────── after a backoff ────────┘                               │
//	    └──────────── RequeueRun ◄── a signal that can be answered ◄───────────┘
//
// Client, Name, EngineType, Tenant and Execute are required.
type Worker struct {
	Client WorkerClient
	// Name names this process for people: 1 to 256 bytes.
	Name string
	// EngineType is that of the runs. The queue has no others.
	EngineType string
	// Tenant, Project, Environment and Queue are those of the runs, as in Options.
	Tenant, Project, Environment, Queue string
	// Max, TTL and Grace are as in Options. 0: their defaults.
	Max        int
	TTL, Grace time.Duration
	// Execute goes on with a run until it waits, is paused or has ended, and then returns nil. Its
	// context ends when the lease is lost. Its errors are those of Starter.Start. After any that is
	// not final, the run is leased again.
	Execute func(ctx context.Context, x *Execution) error
	// Logger gets what operators must know. nil: none.
	Logger *slog.Logger
}

// Run executes runs until ctx ends. Then it begins no more steps, and those that are executed may
// go on for Grace. All goroutines have ended when it returns. An error means that the server
// refuses the worker for good.
func (w *Worker) Run(ctx context.Context) error {
	logger := w.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &working{Worker: w, logger: logger}
	defer context.AfterFunc(ctx, func() { s.stopping.Store(true) })()
	r, err := New(Options{
		Client: w.Client, Starter: s, Worker: w.Name, Tenant: w.Tenant, Project: w.Project, Environment: w.Environment, Queue: w.Queue,
		Max: w.Max, TTL: w.TTL, Grace: w.Grace, StartTimeout: forever, Continue: true, Logger: logger,
		// A signal that came while the run was leased, and was not followed, waits for no watch.
		Report: func(res Result) {
			if res.Status != StatusStarted {
				return
			}
			if err := s.wake(ctx, res.RunID); err != nil && ctx.Err() == nil {
				logger.WarnContext(ctx, "cannot look at a released run", "run", res.RunID, "err", err)
			}
		},
	})
	if err != nil {
		return err
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	signals := &Signals{Log: w.Client, Deliver: s.signalled, Tenant: w.Tenant, Project: w.Project, Environment: w.Environment, Logger: logger}
	watching.Go(func() { signals.Run(ctx) })
	err = r.Run(ctx)
	stop()
	return err
}

// forever is longer than a run is executed at a time.
const forever = 10 * 365 * 24 * time.Hour

// working is a Worker that runs.
type working struct {
	*Worker
	logger *slog.Logger
	// stopping is set once the context of Run has ended: no more steps begin.
	stopping atomic.Bool
}

func (w *working) refOf(runID string) string { return w.EngineType + "/" + runID }

// Start executes a run under its lease.
func (w *working) Start(ctx context.Context, req StartRequest) (string, error) {
	if got := req.Run.GetEngineType(); got != w.EngineType {
		return "", fmt.Errorf("engine: run %.100q has the engine type %.100q, and this worker executes %q: request it in a queue of its own",
			req.Run.GetRunId(), got, w.EngineType)
	}
	x := &Execution{StartRequest: req, Events: *eventsOf(req.Run), State: replay.New(), worker: w}
	x.Events.EmittedBy = w.Name
	err := x.Read(ctx)
	if s := x.State.Status; err == nil && (s == runlogv1.RunStatus_PENDING || s == runlogv1.RunStatus_APPROVED) {
		var started *runlogv1.EventWrite
		if started, err = Started(req.Run, w.refOf(req.Run.GetRunId())); err == nil {
			started.EmittedBy = w.Name
			err = x.Append(ctx, started)
		}
	}
	if err == nil && !x.State.Ended() {
		if err = w.Execute(ctx, x); err == nil && x.State.Status == runlogv1.RunStatus_RUNNING {
			err = errors.New("engine: Execute has returned nil, and the run goes on: return once Follow reports false, or the run has ended")
		}
	}
	if err != nil {
		return "", err
	}
	return w.refOf(req.Run.GetRunId()), nil
}

// signalled has a worker lease a run that is paused or waits, and that a signal lets go on.
// The worker reads the signal from the log.
func (w *working) signalled(ctx context.Context, ref EngineRunRef, _ Signal) error {
	runID, own := strings.CutPrefix(string(ref), w.refOf(""))
	if !own {
		return ErrNoRun
	}
	return w.wake(ctx, runID)
}

// wake puts a run that can answer a signal back into its queue. A run that is leased stays with its
// worker.
func (w *working) wake(ctx context.Context, runID string) error {
	s := replay.New()
	if err := s.Read(ctx, w.Client, runID); err != nil {
		return err
	}
	if !s.Unanswered() {
		return nil
	}
	_, err := w.Client.RequeueRun(ctx, &runlogv1.RequeueRunRequest{RunId: runID})
	if hasReason(err, client.ReasonRunNotQueued) {
		return nil // It has ended meanwhile.
	}
	return err
}

// Execution is the work on a run under one lease. It belongs to the goroutine that executes.
type Execution struct {
	StartRequest
	// Events makes the events of the run.
	Events events.Run
	// State is what the log says of the run, as far as it was read.
	State *replay.State
	// Plan is set by Execute before it calls Follow and Next. nil: Follow does not answer the
	// SKIP_STEP of a step that no event has named.
	Plan   *plan.Plan
	worker *working
}

// Fenced returns the request to append events of the run. The log refuses it with LEASE_LOST once
// another worker has the run (QUE-8).
func (x *Execution) Fenced(events ...*runlogv1.EventWrite) *runlogv1.AppendEventsRequest {
	return &runlogv1.AppendEventsRequest{RunId: x.Run.GetRunId(), Events: events, Fence: &x.Fence}
}

// Append appends an event, and reads what the log then has. If the log had the event before, but
// State shows no effect of it, the run can never go on: the error is a *PermanentError. A run does
// not complete while one of its steps is executed.
func (x *Execution) Append(ctx context.Context, e *runlogv1.EventWrite) error {
	if n := x.State.InFlight(); n > 0 && e.GetEventType() == contract.RunCompleted {
		return fmt.Errorf("engine: run %.100q cannot complete: %d of its steps have begun and not ended: execute what Next returns, which are those of lost workers too",
			x.Run.GetRunId(), n)
	}
	last := x.State.LastSeq
	res, err := x.worker.Client.AppendEvents(ctx, x.Fenced(e))
	if err != nil {
		return err
	}
	if found := res.GetResults()[0]; found.GetIdempotent() && found.GetRunSeq() <= last && !x.began(e) {
		return &PermanentError{Code: "RUN_INCONSISTENT", Err: fmt.Errorf(
			"another writer has appended %s too early, without effect: request another run, and keep that writer from it", e.GetEventType())}
	}
	return x.Read(ctx)
}

// began reports whether an event is the StepStarted of a step that a lost worker has begun: the
// step is executed again.
func (x *Execution) began(e *runlogv1.EventWrite) bool {
	s := x.State.Step(e.GetStepId())
	return e.GetEventType() == contract.StepStarted && s != nil && s.Status == replay.Running && s.Attempt == e.GetLogicalAttemptId()
}

// Read reads what the log has behind the last event of State.
func (x *Execution) Read(ctx context.Context) error {
	return x.State.Read(ctx, x.worker.Client, x.Run.GetRunId())
}

// Follow reads the log, answers the signals that are due, and reports whether the run goes on:
// otherwise it is paused, waits or has ended. It is called before each step. The error is
// ErrStopping once the worker is to stop.
func (x *Execution) Follow(ctx context.Context) (on bool, err error) {
	if err := x.Read(ctx); err != nil {
		return false, err
	}
	for {
		signal, due := x.State.Due(x.Plan)
		if !due || x.State.Ended() {
			on = x.State.Status == runlogv1.RunStatus_RUNNING
			if on && x.worker.stopping.Load() {
				return false, ErrStopping
			}
			return on, nil
		}
		e, err := x.State.Effect(&x.Events, signal, nil)
		if err != nil {
			return false, err
		}
		// A signal that comes first may take this one back.
		req, last := x.Fenced(e), x.State.LastSeq
		req.ExpectedLastSeq = &last
		if _, err := x.worker.Client.AppendEvents(ctx, req); err != nil && !hasReason(err, client.ReasonSequenceConflict) {
			return false, err
		}
		if err := x.Read(ctx); err != nil {
			return false, err
		}
	}
}

// watchAfter is how long a step takes before Do looks for signals meanwhile.
const watchAfter = 200 * time.Millisecond

// Do executes a step: its context ends with ctx, and when an operator has the run cancelled or the
// step skipped. Then the error of f is that of the context, and Follow answers the signal.
func (x *Execution) Do(ctx context.Context, stepID string, f func(ctx context.Context) error) error {
	limited, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() {
		sleep(limited, watchAfter)
		if limited.Err() == nil && x.stopped(limited, stepID) {
			stop()
		}
	})
	return f(limited)
}

// stopped waits for a signal that ends a step, and reports whether one has come.
func (x *Execution) stopped(ctx context.Context, stepID string) bool {
	req := &runlogv1.WatchRunsRequest{TenantId: x.Run.GetTenantId(), RunIdPrefix: x.Run.GetRunId(), View: runlogv1.WatchView_EVENT,
		Types: []string{contract.SignalAccepted}}
	s := replay.New()
	for _, err := range x.worker.Client.WatchRuns(ctx, req) {
		if err != nil {
			return false // Follow sees the signal behind the step.
		}
		// The first message comes once the watch has begun: the signal may be from before.
		if s.Read(ctx, x.worker.Client, x.Run.GetRunId()) != nil {
			return false
		}
		_, ends := s.Pending(contract.SignalCancel, contract.SignalEmergencyStop)
		if asked, ok := s.Asked(stepID); ends || ok && asked.Type == contract.SignalSkipStep {
			return true
		}
	}
	return false
}

var _ Starter = (*working)(nil)
