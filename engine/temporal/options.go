package temporal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	sdkclient "go.temporal.io/sdk/client"

	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/route"
	"runlog/engine/secret"
)

// Options of an Engine. Temporal, Log, Plans, Registry and Worker are required.
type Options struct {
	Temporal sdkclient.Client
	// Namespace is that of the client. Empty: default.
	Namespace string
	// Prefix begins the ids of workflows, before those of their runs. Logs that share a namespace
	// need one each. Empty: DefaultPrefix.
	Prefix   string
	Log      engine.Log
	Plans    plan.Provider
	Registry *executor.Registry
	// Blobs has the artifacts of steps: a run that reruns another one looks whether they are still
	// there. nil: each is taken for there.
	Blobs blob.Opener
	// Secrets resolves the secretRefs of steps. nil: steps have none.
	Secrets secret.Provider
	// Worker names this process for people.
	Worker string
	// Queues are the task queues that Run works on. The workflows and their events are on the queue
	// tq-control-ENVIRONMENT, so some worker must have it.
	Queues []string
	// Isolation are the tenants and environments on whose isolation queues Run works too. A step of
	// another one is refused there.
	Isolation []route.Owner
	// Concurrency is how many steps of each queue Run executes at a time. 0: DefaultConcurrency.
	Concurrency int
	// Sticky is how long a workflow waits for the worker that has it in memory. 0: 5 s.
	Sticky time.Duration
	// Beat is how often a step tells Temporal that it goes on, and learns that it is cancelled. 0:
	// DefaultBeat, or a quarter of the Heartbeat of the Settings.
	Beat time.Duration
	// Grace is how long Run waits for steps after its context has ended. 0: DefaultGrace.
	Grace time.Duration
	// Settings of the runs that StartRun starts.
	Settings Settings
	// Logger gets failures. nil: none.
	Logger *slog.Logger
}

// Defaults of Options.
const (
	DefaultPrefix      = "runlog/"
	DefaultConcurrency = 100
	DefaultBeat        = 2 * time.Second
	DefaultGrace       = 30 * time.Second
)

// Settings are part of a run: they are in the history of its workflow.
type Settings struct {
	// ContinueSteps and ContinueBytes say after how many steps, and from which size of its history
	// on, a workflow continues as a new one. 0: DefaultContinueSteps, DefaultContinueBytes.
	ContinueSteps int `json:"continueSteps"`
	ContinueBytes int `json:"continueBytes"`
	// Parallel is how many steps of a run are under way at a time. 0: DefaultParallel.
	Parallel int `json:"parallel"`
	// Attempts bounds the failures of a step whose plan does not say. 0: DefaultAttempts.
	Attempts int64 `json:"attempts"`
	// StepTimeout bounds each attempt of a step whose plan does not say. 0: DefaultStepTimeout.
	StepTimeout time.Duration `json:"stepTimeout"`
	// Heartbeat is how long a worker may be silent about a step. 0: DefaultHeartbeat.
	Heartbeat time.Duration `json:"heartbeat"`
	// TaskTimeout is how long a worker may take to decide. It is the time until another worker
	// takes over from one that was killed meanwhile. 0: DefaultTaskTimeout.
	TaskTimeout time.Duration `json:"taskTimeout"`
	// CancelOnPause cancels the steps under way at a PAUSE, and executes them again after the
	// RESUME. Else they end by themselves.
	CancelOnPause bool `json:"cancelOnPause,omitempty"`
}

// Defaults of Settings.
const (
	DefaultContinueSteps = 50
	DefaultContinueBytes = 1 << 20
	DefaultParallel      = 100
	DefaultAttempts      = 3
	DefaultStepTimeout   = time.Hour
	DefaultHeartbeat     = 30 * time.Second
	DefaultTaskTimeout   = 10 * time.Second
)

// maxParallel is below Temporal's limit for the open activities of a workflow.
const maxParallel = 1000

// EnsureDefaults returns o with defaults in place of zero values.
func (o Options) EnsureDefaults() Options {
	if o.Namespace == "" {
		o.Namespace = sdkclient.DefaultNamespace
	}
	orDefault(&o.Prefix, DefaultPrefix)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	orDefault(&o.Concurrency, DefaultConcurrency)
	orDefault(&o.Grace, DefaultGrace)
	orDefault(&o.Sticky, 5*time.Second)
	s := &o.Settings
	orDefault(&s.ContinueSteps, DefaultContinueSteps)
	orDefault(&s.ContinueBytes, DefaultContinueBytes)
	orDefault(&s.Parallel, DefaultParallel)
	orDefault(&s.Attempts, DefaultAttempts)
	orDefault(&s.StepTimeout, DefaultStepTimeout)
	orDefault(&s.Heartbeat, DefaultHeartbeat)
	orDefault(&s.TaskTimeout, DefaultTaskTimeout)
	orDefault(&o.Beat, min(DefaultBeat, s.Heartbeat/4))
	return o
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every fault of o, which must have its defaults.
func (o Options) Validate() error {
	var faults []error
	refuse := func(fault bool, format string, args ...any) {
		if fault {
			faults = append(faults, fmt.Errorf("temporal: "+format, args...))
		}
	}
	refuse(o.Temporal == nil, "Temporal is missing")
	refuse(o.Log == nil, "Log is missing")
	refuse(o.Plans == nil, "Plans is missing")
	refuse(o.Registry == nil, "Registry is missing")
	refuse(o.Worker == "", "Worker is empty")
	if err := route.CheckQueues(o.Queues, o.Isolation); err != nil {
		faults = append(faults, fmt.Errorf("temporal: %w", err))
	}
	refuse(o.Concurrency < 1 || o.Concurrency > 10_000, "Concurrency is %d, want 1 to 10000", o.Concurrency)
	refuse(o.Beat < 0, "Beat is %v, want more than 0", o.Beat)
	refuse(o.Grace < 0, "Grace is %v, want more than 0", o.Grace)
	refuse(o.Sticky < 0, "Sticky is %v, want more than 0", o.Sticky)
	s := o.Settings
	refuse(s.ContinueSteps < 1, "Settings.ContinueSteps is %d, want 1 or more", s.ContinueSteps)
	refuse(s.ContinueBytes < 1, "Settings.ContinueBytes is %d, want 1 or more", s.ContinueBytes)
	refuse(s.Parallel < 1 || s.Parallel > maxParallel, "Settings.Parallel is %d, want 1 to %d", s.Parallel, maxParallel)
	refuse(s.Attempts < 1, "Settings.Attempts is %d, want 1 or more", s.Attempts)
	refuse(s.StepTimeout < time.Second, "Settings.StepTimeout is %v, want 1s or more", s.StepTimeout)
	refuse(s.Heartbeat < time.Second, "Settings.Heartbeat is %v, want 1s or more", s.Heartbeat)
	refuse(s.TaskTimeout < time.Second || s.TaskTimeout > 2*time.Minute, "Settings.TaskTimeout is %v, want 1s to 2m", s.TaskTimeout)
	refuse(o.Beat > s.Heartbeat/2, "Beat is %v, want at most half of Settings.Heartbeat, which is %v", o.Beat, s.Heartbeat)
	return errors.Join(faults...)
}
