package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
)

// Defaults of Options.
const (
	DefaultMax          = 10
	DefaultWait         = 20 * time.Second
	DefaultTTL          = 30 * time.Second
	DefaultStartTimeout = 5 * time.Minute
	DefaultGrace        = 10 * time.Second
)

// Limits of the server (QUE-6).
const (
	maxLeases      = 100
	maxWait        = time.Minute
	minTTL, maxTTL = time.Second, time.Hour
)

// Client is what a Reconciler needs of a client.Client. Its calls retry until their context ends.
type Client interface {
	LeaseRuns(context.Context, *runlogv1.LeaseRunsRequest) (*runlogv1.LeaseRunsResponse, error)
	RenewLease(context.Context, *runlogv1.RenewLeaseRequest) (*runlogv1.RenewLeaseResponse, error)
	ReleaseLease(context.Context, *runlogv1.ReleaseLeaseRequest) (*runlogv1.ReleaseLeaseResponse, error)
	AppendEvents(context.Context, *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error)
}

// Options of a Reconciler. Client, Starter and Worker are required.
type Options struct {
	Client  Client
	Starter Starter
	// Worker names this process for people: 1 to 256 bytes.
	Worker string
	// Tenant, Project, Environment and Queue are those of the queues whose runs are started. The
	// fields from the first empty one on are empty, and then any will do.
	Tenant, Project, Environment, Queue string
	// Max is how many runs are started at the same time, 1 to 100. 0: DefaultMax.
	Max int
	// Wait is how long one call of Run waits for a run, 1 s to 60 s, and below the Timeout of the
	// client. 0: DefaultWait.
	Wait time.Duration
	// TTL is how long a lease lasts from its last renewal on, 1 s to 1 h. It is the longest time
	// that a run stays with a reconciler that was killed. 0: DefaultTTL.
	TTL time.Duration
	// StartTimeout bounds each Start. 0: DefaultStartTimeout.
	StartTimeout time.Duration
	// Continue has Start called also for a run that has its engineRunRef and was leased again, such
	// as by RequeueRun: the engine goes on with it. If Start then fails, or is stopped, the run is
	// leased again without a limit, and never fails for that.
	Continue bool
	// Grace is how long a Start may go on after the context of Run has ended. 0: DefaultGrace.
	Grace time.Duration
	// Report is called by Run with each result, from several goroutines. nil: nothing is.
	Report func(Result)
	// Logger gets the starts that failed, at level warn. nil: none.
	Logger *slog.Logger
	// Registerer gets the metrics (runlog_engine_*). Reconcilers of one registerer share them. nil:
	// none.
	Registerer prometheus.Registerer
}

// EnsureDefaults returns o with defaults in place of zero values.
func (o Options) EnsureDefaults() Options {
	if o.Max == 0 {
		o.Max = DefaultMax
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Wait, DefaultWait}, {&o.TTL, DefaultTTL}, {&o.StartTimeout, DefaultStartTimeout}, {&o.Grace, DefaultGrace}} {
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
			faults = append(faults, fmt.Errorf("engine: "+format, args...))
		}
	}
	refuse(o.Client == nil, "Client is missing")
	refuse(o.Starter == nil, "Starter is missing")
	refuse(o.Worker == "" || len(o.Worker) > 256, "Worker has %d bytes, want 1 to 256", len(o.Worker))
	scope := []string{o.Tenant, o.Project, o.Environment, o.Queue}
	for i, name := range []string{"Tenant", "Project", "Environment"} {
		refuse(scope[i] == "" && scope[i+1] != "", "%s is empty, and a narrower field is not: set it too", name)
	}
	refuse(o.Max < 1 || o.Max > maxLeases, "Max is %d, want 1 to %d", o.Max, maxLeases)
	refuse(o.Wait < time.Second || o.Wait > maxWait, "Wait is %v, want 1s to %v", o.Wait, maxWait)
	refuse(o.TTL < minTTL || o.TTL > maxTTL, "TTL is %v, want %v to %v", o.TTL, minTTL, maxTTL)
	refuse(o.StartTimeout < 0, "StartTimeout is %v, want more than 0", o.StartTimeout)
	refuse(o.Grace < 0, "Grace is %v, want more than 0", o.Grace)
	return errors.Join(faults...)
}

// Status is what became of a leased run.
type Status string

// The statuses.
const (
	// StatusStarted: the engine has the run, and RunStarted is stored.
	StatusStarted Status = "STARTED"
	// StatusFailed: this reconciler did not start the run, as far as it knows. Result.Err says why.
	StatusFailed Status = "FAILED"
	// StatusSkipped: the Starter returned ErrSkip, and the run is cancelled.
	StatusSkipped Status = "SKIPPED"
)

// Result is what became of one leased run.
type Result struct {
	RunID  string
	Status Status
	// EngineRunRef is the engine's reference of the run; empty: this reconciler does not know one.
	// With StatusFailed the engine may have a run that has ended in the log: cancel it there.
	EngineRunRef string
	// Err is the cause of StatusFailed and StatusSkipped: the error of the Starter, or a
	// *client.Error, such as LEASE_LOST.
	Err error
}

// Reconciler leases runs and starts them. Any number of them, in any number of processes, may have
// the same queues. Its methods are safe for concurrent use.
type Reconciler struct {
	opts    Options
	metrics *metrics
}

// New returns a Reconciler, which does nothing until it is called.
func New(opts Options) (*Reconciler, error) {
	opts = opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, err
	}
	return &Reconciler{opts: opts, metrics: m}, nil
}

// DequeueAndStart leases the runs that may start now, at most Max, starts them at the same time,
// and returns a result for each (QUE-11). It does not wait for runs. The error is that of
// LeaseRuns: then there are no results.
//
// If ctx ends, so does the context of each Start. DequeueAndStart then still records what the
// engine has answered and releases its leases, which takes at most TTL.
func (r *Reconciler) DequeueAndStart(ctx context.Context) ([]Result, error) {
	asked := time.Now()
	leases, err := r.lease(ctx, r.opts.Max, 0)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(leases))
	var started sync.WaitGroup
	for i, l := range leases {
		started.Go(func() { results[i] = r.start(ctx, l, asked) })
	}
	started.Wait()
	return results, nil
}

// lease leases at most so many runs. It waits for the first one, up to a time.
func (r *Reconciler) lease(ctx context.Context, most int, wait time.Duration) ([]*runlogv1.Lease, error) {
	o := &r.opts
	req := &runlogv1.LeaseRunsRequest{
		TenantId: o.Tenant, ProjectId: o.Project, EnvironmentId: o.Environment, Queue: o.Queue,
		Worker: o.Worker, Max: uint32(most), Ttl: durationpb.New(o.TTL),
	}
	if wait > 0 {
		req.Wait = durationpb.New(wait)
	}
	res, err := o.Client.LeaseRuns(ctx, req)
	return res.GetLeases(), err
}
