package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/artifact"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/replay/memory"
	"runlog/engine/secret"
)

// EngineType is that of the runs of this engine.
const EngineType = "runlog"

// DefaultQueue is the queue of the runs that the API requests.
const DefaultQueue = "runner"

// Blobs stores bytes under URIs, and lists them, such as a blob.Registry. It is safe for concurrent
// use.
type Blobs interface {
	artifact.Blobs
	blob.Lister
}

// Options of a Runner. Client, Worker, Blobs, Base, Executors, Tenant, Project and Environment are
// required.
type Options struct {
	// Client has the credentials of the runner, with the roles producer and reader.
	Client *client.Client
	// As returns a client with the credentials of an Authorization header, and what ends its use;
	// the header may be empty. nil: callers of the API act as the runner.
	As func(authorization string) (c *client.Client, done func(), err error)
	// Worker names this process for people: 1 to 256 bytes.
	Worker string
	// Tenant, Project and Environment are those of the runs that the API requests, and that Run
	// executes. Queue is theirs too; empty: DefaultQueue.
	Tenant, Project, Environment, Queue string
	// Blobs has manifests and plans below the URI Base, and the plans that references name.
	Blobs Blobs
	Base  string
	// Approved has the only plans that are executed: the API then takes no manifests, and starts no
	// runs of those that it has. nil: the plans of Blobs are executed.
	Approved blob.Opener
	// Executors execute the task steps. DefaultExecutor is that of tasks which name none. Empty:
	// noop.
	Executors       *executor.Registry
	DefaultExecutor string
	// Secrets resolves the secretRefs of steps. nil: steps with secretRefs fail.
	Secrets secret.Provider
	// Max is how many runs are executed at the same time, 1 to 100. 0: 16.
	Max int
	// TTL is how long a run stays with a runner that was killed, 1 s to 1 h. 0: 30 s.
	TTL time.Duration
	// Grace is how long the steps that are executed may go on after the context of Run has ended.
	// 0: engine.DefaultGrace.
	Grace time.Duration
	// MemoryBytes bounds the runs and plans that are kept between leases. What is not kept is read
	// again. 0: 64 MiB.
	MemoryBytes int64
	// Logger gets what operators must know, and alerts. nil: none.
	Logger *slog.Logger
	// Registerer gets the metrics. nil: none.
	Registerer prometheus.Registerer
	// Metrics answers GET /metrics of the Handler. nil: nothing does.
	Metrics http.Handler
}

const (
	defaultMax    = 16
	defaultMemory = 64 << 20
)

func (o Options) withDefaults() Options {
	if o.Queue == "" {
		o.Queue = DefaultQueue
	}
	if o.DefaultExecutor == "" {
		o.DefaultExecutor = "noop"
	}
	if o.Max == 0 {
		o.Max = defaultMax
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = defaultMemory
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.As == nil {
		own := o.Client
		o.As = func(string) (*client.Client, func(), error) { return own, func() {}, nil }
	}
	o.Base = strings.TrimSuffix(o.Base, "/")
	return o
}

func (o *Options) validate() error {
	var faults []error
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"Client", o.Client == nil}, {"Worker", o.Worker == ""}, {"Tenant", o.Tenant == ""}, {"Project", o.Project == ""},
		{"Environment", o.Environment == ""}, {"Blobs", o.Blobs == nil}, {"Base", o.Base == ""}, {"Executors", o.Executors == nil},
	} {
		if f.missing {
			faults = append(faults, fmt.Errorf("runner: %s is missing: set it", f.name))
		}
	}
	return errors.Join(faults...)
}

// Runner executes runs. It is safe for concurrent use.
type Runner struct {
	o       Options
	metrics *metrics
	memory  *memory.Memory
	leasing engine.Options // Report is set by Run
	refused atomic.Int64   // the runs that wait for a role of the runner
	// stopping is set once the context of Run has ended: no more steps begin.
	stopping atomic.Bool
}

var _ engine.Starter = (*Runner)(nil)

// forever is longer than a run is executed at a time.
const forever = 10 * 365 * 24 * time.Hour

// New returns a Runner, which does nothing until Run, Execute or Handler is called.
func New(o Options) (*Runner, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	r := &Runner{o: o, metrics: m}
	var source blob.Opener = o.Blobs
	if o.Approved != nil {
		source = o.Approved
	}
	plans, err := plan.NewFetcher(plan.FetcherOptions{Source: source, Capabilities: r.capabilities(), Logger: o.Logger, Registerer: o.Registerer})
	if err != nil {
		return nil, err
	}
	r.memory = memory.New(o.Client, plans, o.MemoryBytes)
	r.leasing = engine.Options{
		Client: leaser{o.Client, r}, Starter: r, Worker: o.Worker, Tenant: o.Tenant, Project: o.Project, Environment: o.Environment, Queue: o.Queue,
		Max: o.Max, TTL: o.TTL, StartTimeout: forever, Grace: o.Grace, Continue: true, Logger: o.Logger, Registerer: o.Registerer,
	}
	return r, r.leasing.EnsureDefaults().Validate()
}

func (r *Runner) capabilities() []string {
	return append(r.o.Executors.Capabilities(), plan.Compute, plan.CapabilityWait)
}

// Run executes the runs of the queue until ctx ends. Then it finishes the steps that it executes,
// within Grace, and another runner goes on with their runs. Any number of runners may have the same
// queue. Run is called once.
func (r *Runner) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { r.stopping.Store(true) })()
	var watching sync.WaitGroup
	watching.Go(func() { r.sweep(ctx) })
	// A worker leases a run that waits, or is paused, and answers its signals.
	signals := &engine.Signals{Log: r.o.Client, Deliver: r.Signal, Tenant: r.o.Tenant, Project: r.o.Project, Environment: r.o.Environment, Logger: r.o.Logger}
	watching.Go(func() { signals.Run(ctx) })
	o := r.leasing
	o.Report = func(res engine.Result) { r.released(ctx, res) }
	leasing, err := engine.New(o)
	if err == nil {
		err = leasing.Run(ctx)
	}
	stop()
	watching.Wait()
	return err
}

// RefOf is the engine's reference of a run.
func RefOf(runID string) string { return refPrefix + runID }

const refPrefix = "runlog/"

// Start executes a run under a lease until it waits, is paused or has ended.
func (r *Runner) Start(ctx context.Context, req engine.StartRequest) (string, error) {
	if err := r.whilePermitted(ctx, req); err != nil {
		return "", engine.Permanent(err)
	}
	return RefOf(req.Run.GetRunId()), nil
}
