package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/mock"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// recorder takes the place of a test that is to fail.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	faults   []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.faults) > 0
}

// record plays a scenario with an engine in fake time, and returns what the suite finds.
func record(t *testing.T, name string, open func(testing.TB, *Env) Engine) (faults []string) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) { faults = recordHere(t, name, open) })
	return faults
}

func recordHere(t *testing.T, name string, open func(testing.TB, *Env) Engine) []string {
	t.Helper()
	r := &recorder{TB: t}
	found := false
	var playing sync.WaitGroup
	for _, s := range scenarios() {
		if s.name == name {
			found = true
			playing.Go(func() { s.play(newBed(r, network.New(1), open)) })
		}
	}
	playing.Wait()
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	if !found {
		t.Fatalf("there is no scenario %s", name)
	}
	return r.faults
}

// mutant is a mock engine with a fault, the scenario that finds it, and what that says.
type mutant struct {
	name, scenario, fault string
	// early is what the scenario says instead if the engine was faster; empty: nothing else.
	early string
	// log, plans and executors change what the worker of a process has, and adapter its adapter.
	log       func(p *Process, l *mutantLog)
	plans     func(p *Process, good plan.Provider) plan.Provider
	executors func(good *executor.Registry) executor.Executor
	adapter   func(a *mock.Adapter) engine.Adapter
}

func (m *mutant) open(testing.TB, *Env) Engine {
	platform := mock.New()
	return Engine{Open: func(t testing.TB, p *Process) (engine.Adapter, func(context.Context)) {
		l := &mutantLog{Log: p.Client}
		if m.log != nil {
			m.log(p, l)
		}
		o := mock.Options{Log: l, Plans: p.Plans(t, append(p.Executors.Capabilities(), plan.Compute, plan.CapabilityWait)), Executors: p.Executors, Blobs: p.Blobs, Worker: p.Name}
		if m.plans != nil {
			o.Plans = m.plans(p, o.Plans)
		}
		if m.executors != nil {
			var err error
			if o.Executors, err = executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"test": m.executors(p.Executors)}); err != nil {
				t.Fatal(err)
			}
		}
		a, err := platform.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if m.adapter != nil {
			return m.adapter(a), a.Run
		}
		return a, a.Run
	}}
}

// mutantLog changes events on their way to and from the log.
type mutantLog struct {
	engine.Log
	read  func(*runlogv1.EventRecord)
	write func(*runlogv1.EventWrite)
	// after is called after an event is appended.
	after func(context.Context, *runlogv1.EventWrite)
}

func (l *mutantLog) ReadEvents(ctx context.Context, req *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		for e, err := range l.Log.ReadEvents(ctx, req) {
			if err == nil && l.read != nil {
				l.read(e)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (l *mutantLog) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if l.write != nil {
		l.write(req.GetEvents()[0])
	}
	res, err := l.Log.AppendEvents(ctx, req)
	if err == nil && l.after != nil {
		l.after(ctx, req.GetEvents()[0])
	}
	return res, err
}

// more appends an event like another one, of another type, step or logical attempt.
func (l *mutantLog) more(ctx context.Context, like *runlogv1.EventWrite, change func(*runlogv1.EventWrite)) {
	e := proto.CloneOf(like)
	e.EventId, e.IdempotencyKey, e.CausedBySignalId = "", "", ""
	e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{}`)}
	change(e)
	_, _ = l.Log.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: e.GetRunId(), Events: []*runlogv1.EventWrite{e}})
}

// on returns what log.after is for events of a type.
func on(kind string, change func(*runlogv1.EventWrite)) func(*Process, *mutantLog) {
	return func(_ *Process, l *mutantLog) {
		l.after = func(ctx context.Context, e *runlogv1.EventWrite) {
			if e.GetEventType() == kind {
				l.more(ctx, e, change)
			}
		}
	}
}

// blind lets an engine not see the events of a type whose payload has a text.
func blind(kind, text string) func(*Process, *mutantLog) {
	return func(_ *Process, l *mutantLog) {
		l.read = func(e *runlogv1.EventRecord) {
			if e.GetEventType() == kind && strings.Contains(string(e.GetPayloadJson()), text) {
				e.EventType = "StepMeasured"
			}
		}
	}
}

// plansFunc are plans by a function.
type plansFunc func(context.Context, plan.Ref) (*plan.Plan, error)

func (f plansFunc) Fetch(ctx context.Context, ref plan.Ref) (*plan.Plan, error) { return f(ctx, ref) }

// bodyOf reads a plan without a look at its digest.
func bodyOf(ctx context.Context, p *Process, ref plan.Ref) ([]byte, error) {
	r, err := p.Blobs.Open(ctx, ref.URI)
	if err != nil {
		return nil, &plan.FetchError{URI: ref.URI, Err: err}
	}
	defer r.Close()
	return io.ReadAll(r)
}

// executorFunc is an executor by a function.
type executorFunc func(context.Context, executor.Task) (executor.Result, error)

func (f executorFunc) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	return f(ctx, task)
}

// adapterOf is an adapter with other methods.
type adapterOf struct {
	*mock.Adapter
	start  func(ref engine.EngineRunRef) engine.EngineRunRef
	signal func(ctx context.Context, ref engine.EngineRunRef, err error) error
	status bool
}

func (a *adapterOf) StartRun(ctx context.Context, ref plan.Ref, rc engine.RunContext) (engine.EngineRunRef, error) {
	got, err := a.Adapter.StartRun(ctx, ref, rc)
	if a.start != nil {
		got = a.start(got)
	}
	return got, err
}

func (a *adapterOf) Signal(ctx context.Context, ref engine.EngineRunRef, s engine.Signal) error {
	err := a.Adapter.Signal(ctx, ref, s)
	if a.signal != nil {
		return a.signal(ctx, ref, err)
	}
	return err
}

func (a *adapterOf) RunStatus(ctx context.Context, ref engine.EngineRunRef) (engine.RunStatus, error) {
	s, err := a.Adapter.RunStatus(ctx, ref)
	if a.status {
		return s, nil
	}
	return s, err
}

var mutants = []mutant{
	{
		name: "a try that is repeated is not told", scenario: "RetriesOfThePlatform", fault: "has no StepRetrying a 1.1",
		log: func(_ *Process, l *mutantLog) {
			l.write = func(e *runlogv1.EventWrite) {
				if e.GetEventType() == contract.StepRetrying {
					e.EventType, e.IdempotencyKey = "StepMeasured", ""
				}
			}
		},
	},
	{
		name: "a failed step holds no run", scenario: "RetryOfHeldRun", fault: "has no RunPaused",
		log: func(_ *Process, l *mutantLog) {
			l.write = func(e *runlogv1.EventWrite) {
				if e.GetEventType() == contract.RunPaused {
					e.EventType, e.IdempotencyKey = contract.RunFailed, ""
				}
			}
		},
	},
	{
		name: "a failed step holds its run before the others have ended", scenario: "FailedStep", fault: "comes without a signal, before the end of step",
		log: on(contract.StepFailed, func(e *runlogv1.EventWrite) { e.EventType, e.StepId = contract.RunPaused, "" }),
	},
	{
		name: "StepCompleted comes twice", scenario: "RetriesOfThePlatform", fault: "has a logical attempt that no signal has asked for",
		log: on(contract.StepCompleted, func(e *runlogv1.EventWrite) { e.LogicalAttemptId++ }),
	},
	{
		name: "starts ignore the id of the run", scenario: "StartedTwice", fault: "the run has the references",
		adapter: func(a *mock.Adapter) engine.Adapter {
			var mu sync.Mutex
			n := 0
			return &adapterOf{Adapter: a, start: func(ref engine.EngineRunRef) engine.EngineRunRef {
				mu.Lock()
				defer mu.Unlock()
				n++
				return ref + engine.EngineRunRef(fmt.Sprint("#", n))
			}}
		},
	},
	{
		name: "dependencies are ignored", scenario: "Order", fault: "comes while the step",
		plans: func(p *Process, _ plan.Provider) plan.Provider {
			return plansFunc(func(ctx context.Context, ref plan.Ref) (*plan.Plan, error) {
				body, err := bodyOf(ctx, p, ref)
				if err != nil {
					return nil, err
				}
				var m map[string]any
				if err := json.Unmarshal(body, &m); err != nil {
					return nil, err
				}
				for _, s := range m["steps"].([]any) {
					delete(s.(map[string]any), "dependsOn")
					delete(s.(map[string]any), "when")
				}
				if body, err = json.Marshal(m); err != nil {
					return nil, err
				}
				free, _, err := plan.Parse(body, plan.Options{})
				return free, err
			})
		},
	},
	{name: "a pause is ignored", scenario: "Pause", fault: "has no RunPaused", log: blind(contract.SignalAccepted, `"PAUSE"`)},
	{
		name: "a run goes on without a RESUME", scenario: "Pause", fault: "which is no accepted RESUME",
		log: on(contract.RunPaused, func(e *runlogv1.EventWrite) {
			e.EventType, e.CausedBySignalId, e.LogicalAttemptId = contract.RunResumed, "nowhere", 0
		}),
	},
	{
		name: "a step starts in a pause", scenario: "Pause", fault: "comes while the run is paused",
		log: on(contract.RunPaused, func(e *runlogv1.EventWrite) {
			e.EventType, e.StepId, e.LogicalAttemptId = contract.StepStarted, "b", 1
		}),
	},
	{
		name: "a run completes after it is cancelled", scenario: "Cancel", fault: "RunCompleted comes after RunCancelled", early: "INVALID_TRANSITION",
		log: on(contract.RunCancelled, func(e *runlogv1.EventWrite) { e.EventType = contract.RunCompleted }),
	},
	{
		name: "a step that has succeeded is repeated after a kill", scenario: "KilledRetriesOfThePlatform", fault: "is executed again after its StepCompleted",
		log: func(p *Process, l *mutantLog) {
			if p.Name != "process-1" {
				blind(contract.StepCompleted, "")(p, l)
			}
		},
	},
	{
		name: "a retry has the wrong logical attempt", scenario: "RetryStep", fault: "has a logical attempt that no signal has asked for",
		log: func(_ *Process, l *mutantLog) {
			l.read = func(e *runlogv1.EventRecord) {
				if e.GetEventType() == contract.SignalAccepted {
					text := strings.Replace(string(e.GetPayloadJson()), `"nextLogicalAttemptId":2`, `"nextLogicalAttemptId":3`, 1)
					e.PayloadForm = &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(text)}
				}
			}
		},
	},
	{name: "a retry is ignored", scenario: "RetryStep", fault: "has no RunCompleted", log: blind(contract.SignalAccepted, `"RETRY_STEP"`)},
	{name: "a skip is ignored", scenario: "SkipStep", fault: "has no StepSkipped b", log: blind(contract.SignalAccepted, `"SKIP_STEP"`)},
	{
		name: "an unknown signal ends the run", scenario: "UnknownSignals", fault: "and to be cancelled is false", early: "RUN_ENDED",
		adapter: func(a *mock.Adapter) engine.Adapter {
			return &adapterOf{Adapter: a, signal: func(ctx context.Context, ref engine.EngineRunRef, err error) error {
				if err != nil {
					_ = a.CancelRun(ctx, ref, "unknown")
				}
				return err
			}}
		},
	},
	{
		name: "unknown signals are taken", scenario: "UnknownSignals", fault: "want an *engine.UnsupportedError",
		adapter: func(a *mock.Adapter) engine.Adapter {
			return &adapterOf{Adapter: a, signal: func(_ context.Context, _ engine.EngineRunRef, err error) error {
				if _, ok := errors.AsType[*engine.UnsupportedError](err); ok {
					return nil
				}
				return err
			}}
		},
	},
	{
		name: "unknown references have a status", scenario: "UnknownReference", fault: "want engine.ErrNoRun",
		adapter: func(a *mock.Adapter) engine.Adapter { return &adapterOf{Adapter: a, status: true} },
	},
	{
		name: "the platform does not retry", scenario: "RetriesOfThePlatform", fault: "has no RunCompleted",
		executors: func(good *executor.Registry) executor.Executor {
			return executorFunc(func(ctx context.Context, task executor.Task) (executor.Result, error) {
				result, err := good.Execute(ctx, task)
				if err != nil {
					err = executor.Fail("FINAL", "%v", err)
				}
				return result, err
			})
		},
	},
	{
		name: "each step is executed twice", scenario: "Order", fault: "was executed 2 times to its success",
		executors: func(good *executor.Registry) executor.Executor {
			return executorFunc(func(ctx context.Context, task executor.Task) (executor.Result, error) {
				if _, err := good.Execute(ctx, task); err != nil {
					return executor.Result{}, err
				}
				return good.Execute(ctx, task)
			})
		},
	},
	{
		name: "steps get no outputs", scenario: "Order", fault: "is executed with the output",
		executors: func(good *executor.Registry) executor.Executor {
			return executorFunc(func(ctx context.Context, task executor.Task) (executor.Result, error) {
				task.Upstream = nil
				return good.Execute(ctx, task)
			})
		},
	},
	{
		name: "the engine attempt is not told", scenario: "RetriesOfThePlatform", fault: "has the attempts of no execution",
		log: func(_ *Process, l *mutantLog) {
			l.write = func(e *runlogv1.EventWrite) { e.EngineAttemptId = 1 }
		},
	},
	{name: "a rerun executes all steps", scenario: "Rerun", fault: "has a StepStarted a", log: blind(contract.RunQueued, "rerunOf")},
	{
		name: "a rerun takes over steps without their outputs", scenario: "Rerun", fault: "does not have that there",
		log: func(_ *Process, l *mutantLog) {
			l.write = func(e *runlogv1.EventWrite) {
				if text := string(e.GetPayloadJson()); strings.Contains(text, "takenFrom") {
					e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(strings.Replace(text, "output", "input", 1))}
				}
			}
		},
	},
	{
		name: "a step that is taken over does not say from where", scenario: "Rerun", fault: "comes without a StepStarted",
		log: func(_ *Process, l *mutantLog) {
			l.write = func(e *runlogv1.EventWrite) {
				text := strings.Replace(string(e.GetPayloadJson()), "takenFrom", "from", 1)
				e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(text)}
			}
		},
	},
	{
		name: "a step is executed that was taken over", scenario: "Rerun", fault: "is executed again after its StepCompleted",
		executors: func(good *executor.Registry) executor.Executor {
			return executorFunc(func(ctx context.Context, task executor.Task) (executor.Result, error) {
				taken := task
				taken.StepID = "a"
				_, _ = good.Execute(ctx, taken)
				return good.Execute(ctx, task)
			})
		},
	},
	{
		name: "plans are not compared with their digests", scenario: "PlanFaults", fault: "other bytes: the run fails with the code",
		plans: func(p *Process, _ plan.Provider) plan.Provider {
			return plansFunc(func(ctx context.Context, ref plan.Ref) (*plan.Plan, error) {
				body, err := bodyOf(ctx, p, ref)
				if err != nil {
					return nil, err
				}
				parsed, _, err := plan.Parse(body, plan.Options{Capabilities: p.Executors.Capabilities()})
				return parsed, err
			})
		},
	},
}

// TestMutantsENG2: the suite finds the fault of each broken engine.
func TestMutantsENG2(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			faults := record(t, m.scenario, m.open)
			said := strings.Join(faults, "\n")
			if !strings.Contains(said, m.fault) && (m.early == "" || !strings.Contains(said, m.early)) {
				t.Errorf("the scenario %s does not say %q, but %q", m.scenario, m.fault, faults)
			}
		})
	}
}

// TestSoundENG2: the scenarios that find mutants find nothing in the engine itself.
func TestSoundENG2(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range mutants {
		if seen[m.scenario] || strings.HasPrefix(m.scenario, "Killed") {
			continue
		}
		seen[m.scenario] = true
		if faults := record(t, m.scenario, (&mutant{}).open); len(faults) > 0 {
			t.Errorf("%s: %q", m.scenario, faults)
		}
	}
}
