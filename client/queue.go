package client

import (
	"context"

	runlogv1 "runlog/proto/runlog/v1"
)

// RequestRun makes a run and enters it into a queue (QUE-1). The same request again returns the
// same run.
func (c *Client) RequestRun(ctx context.Context, req *runlogv1.RequestRunRequest) (*runlogv1.RequestRunResponse, error) {
	return write(ctx, c, c.queues.RequestRun, req)
}

// LeaseRuns leases the next runs of queues to a worker (QUE-6). A lease whose answer
// was lost ends at its expireTime: a retry gets other runs.
func (c *Client) LeaseRuns(ctx context.Context, req *runlogv1.LeaseRunsRequest) (*runlogv1.LeaseRunsResponse, error) {
	return write(ctx, c, c.queues.LeaseRuns, req)
}

// RenewLease lets a lease last longer (QUE-7). LEASE_LOST: it has ended.
func (c *Client) RenewLease(ctx context.Context, req *runlogv1.RenewLeaseRequest) (*runlogv1.RenewLeaseResponse, error) {
	return write(ctx, c, c.queues.RenewLease, req)
}

// ReleaseLease ends a lease, and stores the reference and the events of a start with it (QUE-7).
// The same release again changes nothing. Events get an eventId as those of AppendEvents do.
func (c *Client) ReleaseLease(ctx context.Context, req *runlogv1.ReleaseLeaseRequest) (*runlogv1.ReleaseLeaseResponse, error) {
	if err := nameEvents(req.GetEvents()); err != nil {
		return nil, err
	}
	return write(ctx, c, c.queues.ReleaseLease, req)
}

// PutQueue changes the settings of a queue, or makes it (QUE-3).
func (c *Client) PutQueue(ctx context.Context, req *runlogv1.PutQueueRequest) (*runlogv1.PutQueueResponse, error) {
	return write(ctx, c, c.queues.PutQueue, req)
}

// PauseQueue stops the leases of a queue.
func (c *Client) PauseQueue(ctx context.Context, req *runlogv1.PauseQueueRequest) (*runlogv1.PauseQueueResponse, error) {
	return write(ctx, c, c.queues.PauseQueue, req)
}

// ResumeQueue ends a pause.
func (c *Client) ResumeQueue(ctx context.Context, req *runlogv1.ResumeQueueRequest) (*runlogv1.ResumeQueueResponse, error) {
	return write(ctx, c, c.queues.ResumeQueue, req)
}

// ListQueues returns a page of queues in the order of their names; Pages yields them all.
func (c *Client) ListQueues(ctx context.Context, req *runlogv1.ListQueuesRequest) (*runlogv1.ListQueuesResponse, error) {
	return call(ctx, c, c.queues.ListQueues, req)
}

// GetQueue returns a queue with its settings and counts.
func (c *Client) GetQueue(ctx context.Context, req *runlogv1.GetQueueRequest) (*runlogv1.GetQueueResponse, error) {
	return call(ctx, c, c.queues.GetQueue, req)
}

// ListQueuedRuns returns a page of the runs of a queue; Pages yields them all.
func (c *Client) ListQueuedRuns(ctx context.Context, req *runlogv1.ListQueuedRunsRequest) (*runlogv1.ListQueuedRunsResponse, error) {
	return call(ctx, c, c.queues.ListQueuedRuns, req)
}

// CancelQueued takes a run out of its queue, and appends its RunCancelled. A retry after
// an unknown outcome may find it done: RUN_NOT_QUEUED.
func (c *Client) CancelQueued(ctx context.Context, req *runlogv1.CancelQueuedRequest) (*runlogv1.CancelQueuedResponse, error) {
	return write(ctx, c, c.queues.CancelQueued, req)
}

// Reprioritize changes the priority of a run that was not started.
func (c *Client) Reprioritize(ctx context.Context, req *runlogv1.ReprioritizeRequest) (*runlogv1.ReprioritizeResponse, error) {
	return write(ctx, c, c.queues.Reprioritize, req)
}

// RequeueRun puts a run that was started back into its queue, so that a worker goes on with it.
func (c *Client) RequeueRun(ctx context.Context, req *runlogv1.RequeueRunRequest) (*runlogv1.RequeueRunResponse, error) {
	return write(ctx, c, c.queues.RequeueRun, req)
}

// SendSignal has a signal decided (SIG-2). The same signalId again returns the same decision.
func (c *Client) SendSignal(ctx context.Context, req *runlogv1.SendSignalRequest) (*runlogv1.SendSignalResponse, error) {
	return write(ctx, c, c.signals.SendSignal, req)
}

// AttestStep attests a step that waits for it (SEC-10). It resumes nothing. The same attestation
// again is the stored one.
func (c *Client) AttestStep(ctx context.Context, req *runlogv1.AttestStepRequest) (*runlogv1.AttestStepResponse, error) {
	return write(ctx, c, c.signals.AttestStep, req)
}
