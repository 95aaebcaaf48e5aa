package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// Node is the part of the replica that the service needs.
type Node interface {
	Execute(context.Context, storage.Command) (storage.Outcome, error)
	ExecuteAppend(context.Context, *storage.Append, replica.Around) (replica.Appended, error)
	ReadIndex(context.Context) error
	rpc.Runs
	Store() *storage.Store
	// Leading reports whether this node leads, and WaitLeading returns when it does. LeaderChange
	// returns a channel that is closed when that changes.
	Leading() bool
	WaitLeading(context.Context) error
	LeaderChange() <-chan struct{}
}

// Snapshots folds runs.
type Snapshots interface {
	// Snapshot returns the snapshot of a run that has at least the events of a view.
	Snapshot(*storage.View) (*run.Snapshot, error)
}

// Options configure the service. All are required.
type Options struct {
	Node      Node
	Snapshots Snapshots
	Encoded   *wire.Snapshots
	// Rules returns the rules that events of a run must meet.
	Rules func(runID string) contract.Options
	Clock func() time.Time
	// MaxWaiting bounds the calls of LeaseRuns that wait for a run.
	MaxWaiting int
	Logger     *slog.Logger
	Registry   *prometheus.Registry
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
}

// Service implements QueueService. Its fields never change, but for what they guard themselves.
type Service struct {
	runlogv1.UnimplementedQueueServiceServer
	opts     Options
	node     Node // of opts
	metrics  *metrics
	turns    turns    // has a lock of its own, as the next two have
	recent   recent   // requests that a lease may answer without a look at the store
	waiters  *waiters // the calls that wait for a run
	ticker   ticker
	stopRows func() // ends the calls of written
}

var _ runlogv1.QueueServiceServer = (*Service)(nil)

// New makes the service. On the leader, it keeps the time of leases from now on.
func New(opts Options) *Service {
	s := &Service{opts: opts, node: opts.Node, waiters: newWaiters(opts.MaxWaiting)}
	s.metrics = newMetrics(s)
	s.start()
	return s
}

// Close ends what the service does by itself. Options.Stopping must have ended, and all calls.
func (s *Service) Close() error {
	s.stopRows()
	s.ticker.end()
	s.ticker.done.Wait()
	s.metrics.unregister(s.opts.Registry)
	return nil
}

const (
	// standardQueue is the queue of a request that names none (QUE-3).
	standardQueue = "default"
	// tries bounds how often a call decides again because the run has changed meanwhile.
	tries = 5

	shortest = time.Second
	longest  = time.Hour // of a lease
	maxYears = 10        // of a notBefore, a delay and an aging period
	maxText  = 4 << 10   // of an error and a reason, in bytes
)

// violations gathers what is wrong with a request.
type violations struct{ rpc.Violations }

// now is the time of the next proposal, as far as this node knows.
func (s *Service) now() int64 {
	return max(s.opts.Clock().UnixNano(), s.node.Store().Applied().PersistedAt)
}

// yearsFrom is the time some years after another, in nanoseconds since 1970.
func yearsFrom(ns int64, years int) int64 {
	at := time.Unix(0, ns).AddDate(years, 0, 0)
	if at.Year() > 2261 {
		return math.MaxInt64
	}
	return at.UnixNano()
}

// queueName returns the queue that a request names, and checks its name. mayMake: the request makes
// a queue that does not exist.
func (v *violations) queueName(req named, mayMake bool) queue.Name {
	tenantFault, scopeFault, nameFault := contract.StoredScopeFault, contract.StoredScopeFault, contract.StoredNameFault
	if mayMake {
		tenantFault, scopeFault = partOfKey(contract.TenantFault), partOfKey(contract.ScopeFault)
		nameFault = contract.NameFault
	}
	n := queue.Name{
		Tenant: req.GetTenantId(), Project: req.GetProjectId(), Environment: req.GetEnvironmentId(),
		Queue: cmp.Or(req.GetQueue(), standardQueue),
	}
	v.Add("tenantId", tenantFault(n.Tenant))
	v.Add("projectId", scopeFault(n.Project))
	v.Add("environmentId", scopeFault(n.Environment))
	v.Add("queue", nameFault(n.Queue))
	return n
}

// partOfKey also refuses the vertical bar, which separates the parts of the key of a request
// (QUE-2).
func partOfKey(faultOf func(string) string) func(string) string {
	return func(s string) string {
		if strings.Contains(s, "|") {
			return contract.NameFault(s)
		}
		return faultOf(s)
	}
}

// run reads a run and its current status.
func (s *Service) run(runID string) (*runlogv1.Run, error) {
	r, err := s.node.Store().Run(runID)
	if err != nil {
		return nil, err
	}
	if r.LastSeq == 1 {
		return wire.QueuedRun(r), nil
	}
	return s.folded(runID)
}

// folded reads a run, and folds its events.
func (s *Service) folded(runID string) (_ *runlogv1.Run, err error) {
	v, err := s.node.Store().View(runID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snapshot, err := s.opts.Snapshots.Snapshot(v)
	if err != nil {
		return nil, err
	}
	summary := run.SummaryOf(snapshot)
	return s.opts.Encoded.Run(v.Run, &summary, s.opts.Clock()), nil
}

// callersRun returns a run that the caller may change.
func (s *Service) callersRun(ctx context.Context, runID string) (*storage.Run, error) {
	if err := rpc.CheckChange(ctx, s.node, runID); err != nil {
		return nil, err
	}
	return s.node.Store().Run(runID)
}

// callersQueued returns where a run that the caller may change is, and its queue; nil: the run is
// in no queue. The tenant of a queue is that of its runs, so that a run in a queue itself need not
// be read.
func (s *Service) callersQueued(ctx context.Context, runID string) (*queue.Run, *queue.Queue, error) {
	queued, q, err := queue.ReadRun(s.node.Store(), runID)
	if err != nil || queued != nil && auth.From(ctx).Sees(q.Name.Tenant) {
		return queued, q, err
	}
	if _, err := s.callersRun(ctx, runID); err != nil {
		return nil, nil, err
	}
	return queue.ReadRun(s.node.Store(), runID) // The check may have waited for the request.
}

// caller is the identity with which events of the call are recorded (SEC-8).
func caller(ctx context.Context) contract.Author { return auth.From(ctx).Authenticated() }
