package queue

import (
	"context"
	"errors"
	"fmt"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// cancelledInQueue is the reasonCode of a run that was taken out of its queue.
const cancelledInQueue = "CANCELLED_IN_QUEUE"

// CancelQueued takes a run out of its queue, and appends its RunCancelled (QUE-10).
func (s *Service) CancelQueued(ctx context.Context, req *runlogv1.CancelQueuedRequest) (*runlogv1.CancelQueuedResponse, error) {
	var bad violations
	bad.Add("runId", contract.NameFault(req.RunId))
	bad.text("reason", req.Reason)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	run, err := s.callersRun(ctx, req.RunId)
	if err != nil {
		return nil, err
	}
	if err := s.settled(ctx, req.RunId); err != nil {
		return nil, err
	}
	cancel, err := queue.Cancel(req.RunId)
	if err != nil {
		return nil, err
	}
	end, err := s.ending(s.cancelled(run, cancelledInQueue, req.Reason), "reason", caller(ctx))
	if err != nil {
		return nil, err
	}
	outcome, err := s.executeEnd(ctx, end, cancel)
	if err != nil {
		return nil, refusal(err)
	}
	return &runlogv1.CancelQueuedResponse{RunSeq: outcome.Answers[1].LastSeq, Position: rpc.FormatPosition(s.node.Store().Incarnation(), outcome.Position)}, nil
}

// RequeueRun puts a run that was started back into its queue.
func (s *Service) RequeueRun(ctx context.Context, req *runlogv1.RequeueRunRequest) (*runlogv1.RequeueRunResponse, error) {
	var bad violations
	bad.Add("runId", contract.NameFault(req.RunId))
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if _, err := s.callersRun(ctx, req.RunId); err != nil {
		return nil, err
	}
	var err error
	for range tries {
		var resp *runlogv1.RequeueRunResponse
		if resp, err = s.requeue(ctx, req.RunId); !again(err) {
			return resp, refusal(err)
		}
	}
	return nil, refusal(err)
}

// requeue proposes to put a run back as it is now. A *queue.ChangedError: it is another.
func (s *Service) requeue(ctx context.Context, runID string) (*runlogv1.RequeueRunResponse, error) {
	operations, end, err := s.puttingBack(ctx, runID)
	if err != nil {
		return nil, err
	}
	outcome, err := s.executeEnd(ctx, end, operations...)
	if err != nil {
		return nil, err
	}
	state, repeated, err := queue.DecodeRequeue(outcome.Answers[0].Reply)
	if err != nil {
		return nil, err
	}
	r, _, err := queue.ReadRun(s.node.Store(), runID)
	if err != nil {
		return nil, err
	}
	if end != nil {
		state = queue.Ended
	}
	if r == nil { // It has ended.
		r = &queue.Run{RunID: runID, State: state}
	}
	return &runlogv1.RequeueRunResponse{Run: wireQueued(r), Idempotent: repeated}, nil
}

// puttingBack is the command that makes a run ready again, as the run is now. It ends a run that
// has accepted a CANCEL or an EMERGENCY_STOP, unless a worker executes it, which ends it. For every
// other run, end is nil.
func (s *Service) puttingBack(ctx context.Context, runID string) (_ []storage.Operation, end *storage.Append, err error) {
	v, err := s.node.Store().View(runID)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snapshot, err := s.opts.Snapshots.Snapshot(v)
	if err != nil {
		return nil, nil, err
	}
	last := &snapshot.LastEventSeq
	if snapshot.Status != run.Pending && snapshot.Status != run.Approved {
		last = nil // It stays started, and its engine may store events all the time.
	}
	back, err := queue.Requeue(runID, last)
	if err != nil {
		return nil, nil, err
	}
	queued, _, err := queue.ReadRun(s.node.Store(), runID)
	if err != nil || queued == nil || queued.ExpiresAt != 0 || cancelling(snapshot) == nil {
		return []storage.Operation{back}, nil, err
	}
	cancel, end, err := s.cancellation(v.Run, snapshot, caller(ctx))
	return []storage.Operation{back, cancel}, end, err
}

// Reprioritize changes the priority of a run that was not started (QUE-10).
func (s *Service) Reprioritize(ctx context.Context, req *runlogv1.ReprioritizeRequest) (*runlogv1.ReprioritizeResponse, error) {
	var bad violations
	bad.Add("runId", contract.NameFault(req.RunId))
	switch {
	case req.Priority == nil:
		bad.Add("priority", fmt.Sprintf("is required: send 0 (lowest) to %d", queue.MaxPriority))
	case *req.Priority > queue.MaxPriority:
		bad.Add("priority", fmt.Sprintf("is %d: send 0 (lowest) to %d", *req.Priority, queue.MaxPriority))
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if _, err := s.callersRun(ctx, req.RunId); err != nil {
		return nil, err
	}
	op, err := queue.Reprioritize(req.RunId, *req.Priority)
	if err != nil {
		return nil, err
	}
	if _, err := s.execute(ctx, op); err != nil {
		return nil, refusal(err)
	}
	r, _, err := queue.ReadRun(s.node.Store(), req.RunId)
	if err != nil {
		return nil, err
	}
	if r == nil { // It has ended since.
		r = &queue.Run{RunID: req.RunId, Priority: *req.Priority}
	}
	return &runlogv1.ReprioritizeResponse{Run: wireQueued(r)}, nil
}
