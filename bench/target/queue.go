package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

var (
	_ Queuer    = (*Remote)(nil)
	_ Leaser    = (*Remote)(nil)
	_ Signaller = (*Remote)(nil)
)

// What the runs of queues have in common.
const (
	queueTenant      = "tenant_bench_queue"
	queueProject     = "project_bench"
	queueEnvironment = "env_bench"
	queuePlan        = "plan_nightly_analytics"
	queuePlanVersion = "3.4"
	// leaseWait is how long one call waits for runs.
	leaseWait = 10 * time.Second
)

// remoteQueue is a queue of a node. One goroutine leases for all workers, as a reconciler does, as
// many runs as there are workers without one.
type remoteQueue struct {
	client *client.Client
	name   string

	idle   chan struct{} // has one element for each worker that waits
	leased chan *runlogv1.Lease
	stop   context.CancelCauseFunc
	ended  sync.WaitGroup
	failed atomic.Pointer[error]
	done   <-chan struct{}
}

// queues numbers the queues of this process.
var queues atomic.Uint64

// OpenQueue starts to lease the runs of a new queue.
func (r *Remote) OpenQueue(_ context.Context, workers int) (Queue, error) {
	ctx, stop := context.WithCancelCause(context.Background())
	q := &remoteQueue{
		client: r.link().client, name: fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), queues.Add(1)),
		idle: make(chan struct{}, workers), leased: make(chan *runlogv1.Lease, workers), stop: stop, done: ctx.Done(),
	}
	q.ended.Go(func() { q.lease(ctx) })
	return q, nil
}

// lease leases runs for the workers that wait, until ctx ends or a call fails.
func (q *remoteQueue) lease(ctx context.Context) {
	for waiting := uint32(0); ; {
		if waiting == 0 {
			select {
			case <-ctx.Done():
				return
			case <-q.idle:
				waiting++
			}
		}
		for more := true; more && waiting < maxLeases; {
			select {
			case <-q.idle:
				waiting++
			default:
				more = false
			}
		}
		res, err := q.client.LeaseRuns(ctx, &runlogv1.LeaseRunsRequest{
			TenantId: queueTenant, ProjectId: queueProject, EnvironmentId: queueEnvironment, Queue: q.name,
			Worker: "bench", Max: waiting, Wait: durationpb.New(leaseWait),
		})
		if err != nil {
			if ctx.Err() == nil {
				q.failed.Store(&err)
				q.stop(err)
			}
			return
		}
		for _, l := range res.Leases {
			q.leased <- l
			waiting--
		}
	}
}

// maxLeases is how many runs one call leases at most.
const maxLeases = 100

// Request calls RequestRun.
func (q *remoteQueue) Request(ctx context.Context, runID string) error {
	_, err := q.client.RequestRun(ctx, requestOf(runID, q.name))
	return err
}

func requestOf(runID, queue string) *runlogv1.RequestRunRequest {
	return &runlogv1.RequestRunRequest{
		RunRequestId: runID, RunId: runID, TenantId: queueTenant, ProjectId: queueProject, EnvironmentId: queueEnvironment,
		Queue: queue, PlanRef: &runlogv1.PlanRef{PlanId: queuePlan, PlanVersion: queuePlanVersion},
	}
}

// Take waits for a lease.
func (q *remoteQueue) Take(ctx context.Context) (Job, error) {
	select {
	case q.idle <- struct{}{}:
	case <-q.done:
		return nil, q.failure()
	}
	select {
	case l := <-q.leased:
		return &remoteJob{q, l}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-q.done:
		return nil, q.failure()
	}
}

func (q *remoteQueue) failure() error {
	if err := q.failed.Load(); err != nil {
		return *err
	}
	return errors.New("bench: the queue is closed")
}

// Close ends the calls of the queue.
func (q *remoteQueue) Close() error {
	q.stop(nil)
	q.ended.Wait()
	return nil
}

// remoteJob is a lease.
type remoteJob struct {
	q     *remoteQueue
	lease *runlogv1.Lease
}

// RunID names the run.
func (j *remoteJob) RunID() string { return j.lease.RunId }

// Started releases the lease, with RunStarted in the release.
func (j *remoteJob) Started(ctx context.Context) error {
	_, err := j.q.client.ReleaseLease(ctx, &runlogv1.ReleaseLeaseRequest{
		RunId: j.lease.RunId, Fence: j.lease.Fence, Outcome: runlogv1.LeaseOutcome_STARTED,
		Events: []*runlogv1.EventWrite{StartOf(time.Now())},
	})
	return err
}

// StartOf returns the RunStarted of a run of a queue.
func StartOf(at time.Time) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		EventType: "RunStarted", TenantId: queueTenant, ProjectId: queueProject, EnvironmentId: queueEnvironment,
		PlanId: queuePlan, PlanVersion: queuePlanVersion, LogicalAttemptId: 1, EngineAttemptId: 1,
		EmittedAt: timestamppb.New(at), EmittedBy: "bench",
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"engineType":"bench","engineRunRef":"bench/1"}`)},
	}
}

// Lease requests a run in a queue of its own and leases it.
func (r *Remote) Lease(ctx context.Context, req *runlogv1.RequestRunRequest) (uint64, error) {
	c := r.link().client
	if _, err := c.RequestRun(ctx, req); err != nil {
		return 0, err
	}
	res, err := c.LeaseRuns(ctx, &runlogv1.LeaseRunsRequest{
		TenantId: req.TenantId, ProjectId: req.ProjectId, EnvironmentId: req.EnvironmentId, Queue: req.Queue,
		Worker: "bench", Ttl: durationpb.New(time.Hour),
	})
	switch {
	case err != nil:
		return 0, err
	case len(res.Leases) != 1 || res.Leases[0].RunId != req.RunId:
		return 0, fmt.Errorf("bench: %d runs leased of the queue of run %s", len(res.Leases), req.RunId)
	}
	return res.Leases[0].Fence, nil
}

// Begin appends the RunStarted of a run.
func (r *Remote) Begin(ctx context.Context, runID string) error {
	_, err := r.Append(ctx, &runlogv1.AppendEventsRequest{RunId: runID, Events: []*runlogv1.EventWrite{StartOf(time.Now())}})
	return err
}

// Signal sends UPDATE_PARAMS, which a run takes any number of.
func (r *Remote) Signal(ctx context.Context, runID, signalID string) error {
	res, err := r.link().client.SendSignal(ctx, &runlogv1.SendSignalRequest{
		RunId: runID, SignalId: signalID, SignalType: "UPDATE_PARAMS", Reason: "bench",
	})
	if err == nil && res.Decision != runlogv1.Decision_ACCEPTED {
		return fmt.Errorf("bench: the signal was rejected: %s", res.RejectReason)
	}
	return err
}

// Signals watches SignalAccepted of all runs, as an engine does.
func (r *Remote) Signals(ctx context.Context, ready func(), told func(signalID string)) error {
	for m, err := range r.link().client.WatchRuns(ctx, &runlogv1.WatchRunsRequest{
		TenantId: queueTenant, View: runlogv1.WatchView_EVENT, Types: []string{"SignalAccepted"},
	}) {
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.GetCaughtUp() != nil:
			ready()
		}
		for _, e := range m.GetEvents().GetEvents() {
			told(e.GetCausedBySignalId())
		}
	}
	return nil
}
