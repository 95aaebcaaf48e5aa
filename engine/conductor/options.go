package conductor

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/conductor/api"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/route"
	"runlog/engine/secret"
)

// Defaults of Options.
const (
	DefaultConcurrency     = 16
	DefaultAttempts        = 3
	DefaultResponseTimeout = time.Minute
	DefaultWait            = 10 * time.Second
	DefaultDrainTimeout    = 5 * time.Minute
	DefaultMemoryBytes     = 64 << 20
	DefaultGrace           = 30 * time.Second
)

// Options of an Engine. API, Log, Plans, Registry, Worker and OwnerEmail are required.
type Options struct {
	API      *api.Client
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
	// Queues are the task queues whose steps Run executes.
	Queues []string
	// Isolation are the tenants and environments whose isolated steps Run executes too. A step of
	// another one is refused.
	Isolation []route.Owner
	// OwnerEmail is that of the workflows. Conductor demands one.
	OwnerEmail string
	// Concurrency is how many steps of each queue Run executes at a time. 0: DefaultConcurrency.
	Concurrency int
	// Attempts bounds the engine attempts of a step whose plan does not say. 0: DefaultAttempts.
	Attempts int
	// ResponseTimeout is how long a worker may be silent about a task, in whole seconds. It is the
	// time until the tasks of a worker that was killed are tried again. 0: DefaultResponseTimeout.
	ResponseTimeout time.Duration
	// Wait is how long a task that cannot run yet stays in its queue, in whole seconds. 0:
	// DefaultWait.
	Wait time.Duration
	// DrainTimeout is how long RunStatus says DRAINING after a pause. 0: DefaultDrainTimeout.
	DrainTimeout time.Duration
	// MemoryBytes bounds the runs and plans that are kept between tasks. What is not kept is read
	// again for each task. 0: DefaultMemoryBytes.
	MemoryBytes int64
	// Grace is how long the steps that are executed may go on after the context of Run has ended.
	// 0: DefaultGrace.
	Grace time.Duration
	// Logger gets failures. nil: none.
	Logger *slog.Logger
}

// EnsureDefaults returns o with defaults in place of zero values.
func (o Options) EnsureDefaults() Options {
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Attempts == 0 {
		o.Attempts = DefaultAttempts
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.ResponseTimeout, DefaultResponseTimeout}, {&o.Wait, DefaultWait}, {&o.DrainTimeout, DefaultDrainTimeout}, {&o.Grace, DefaultGrace}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return o
}

// Validate reports every fault of o, which must have its defaults.
func (o Options) Validate() error {
	var faults []error
	refuse := func(fault bool, format string, args ...any) {
		if fault {
			faults = append(faults, fmt.Errorf("conductor: "+format, args...))
		}
	}
	refuse(o.API == nil, "API is missing")
	refuse(o.Log == nil, "Log is missing")
	refuse(o.Plans == nil, "Plans is missing")
	refuse(o.Registry == nil, "Registry is missing")
	refuse(o.Worker == "", "Worker is empty")
	if err := route.CheckQueues(o.Queues, o.Isolation); err != nil {
		faults = append(faults, fmt.Errorf("conductor: %w", err))
	}
	refuse(o.OwnerEmail == "", "OwnerEmail is empty, and Conductor demands one")
	refuse(o.Concurrency < 1 || o.Concurrency > 1000, "Concurrency is %d, want 1 to 1000", o.Concurrency)
	refuse(o.Attempts < 1, "Attempts is %d, want 1 or more", o.Attempts)
	refuse(o.MemoryBytes < 0, "MemoryBytes is %d, want more than 0", o.MemoryBytes)
	refuse(o.ResponseTimeout < time.Second, "ResponseTimeout is %v, want 1s or more", o.ResponseTimeout)
	refuse(o.Wait < time.Second, "Wait is %v, want 1s or more", o.Wait)
	refuse(o.DrainTimeout < 0, "DrainTimeout is %v, want more than 0", o.DrainTimeout)
	refuse(o.Grace < 0, "Grace is %v, want more than 0", o.Grace)
	return errors.Join(faults...)
}
