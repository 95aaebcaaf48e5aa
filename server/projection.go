package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runlog/projector"
	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

type projectionService struct {
	runlogv1.UnimplementedProjectionServiceServer
	s *Server
}

// GetSnapshot returns the fold of a run's events, never older than asked for (READ-2).
func (p *projectionService) GetSnapshot(ctx context.Context, req *runlogv1.GetSnapshotRequest) (_ *runlogv1.GetSnapshotResponse, err error) {
	if err := p.s.admit(ctx, req.RunId, req.Consistency); err != nil {
		return nil, statusOf(err)
	}
	if answer := p.live(req); answer != nil {
		return answer, nil
	}
	v, err := p.s.open(ctx, req.RunId, req.MinSeq)
	if err != nil {
		return nil, statusOf(err)
	}
	defer func() { err = statusOf(errors.Join(err, v.Close())) }()
	at, now, err := p.s.asOf(req, v.Run)
	if err != nil {
		return nil, err
	}
	var snapshot *run.Snapshot
	if at == projector.Always {
		snapshot, err = p.s.projector.Snapshot(v.View)
	} else {
		snapshot, err = p.s.projector.SnapshotAsOf(ctx, v.View, at)
	}
	if err != nil {
		return nil, err
	}
	if req.AsOfSeq != nil && snapshot.LastEventSeq > 0 {
		now = snapshot.PersistedAt
	}
	res := &runlogv1.GetSnapshotResponse{Snapshot: p.s.encodeSnapshotAt(snapshot, now), Applied: v.applied()}
	res.Snapshot.Stale = at == projector.Always && p.s.projector.Stale(req.RunId)
	return res, nil
}

// live answers from memory, if memory has everything that is applied: nothing of the store is
// opened then. It returns nil where that is not so, and where the past is asked for.
func (p *projectionService) live(req *runlogv1.GetSnapshotRequest) *runlogv1.GetSnapshotResponse {
	if req.AsOfSeq != nil || req.AsOfTime != nil {
		return nil
	}
	at := p.s.store.Applied()
	snapshot := p.s.projector.Live(req.RunId, at.Position())
	if snapshot == nil || snapshot.LastEventSeq < req.MinSeq {
		return nil
	}
	return &runlogv1.GetSnapshotResponse{Snapshot: p.s.encodeSnapshotAt(snapshot, p.s.opts.Clock()), Applied: encodeApplied(at)}
}

// encodeSnapshotAt adds to a snapshot what depends on the moment at which it is looked at (PRJ-9).
func (s *Server) encodeSnapshotAt(snapshot *run.Snapshot, now time.Time) *runlogv1.RunSnapshot {
	substatus, message := snapshot.Substatus(now, s.opts.DrainTimeout)
	m := s.encodings.message(snapshot)
	m.Substatus, m.Message = optional(substatus), optional(message)
	return m
}

// asOf returns the moment that a request for a snapshot names, and the time at which its reader
// stands.
func (s *Server) asOf(req *runlogv1.GetSnapshotRequest, run *storage.Run) (at projector.AsOf, now time.Time, err error) {
	at, now = projector.Always, s.opts.Clock()
	switch {
	case req.AsOfSeq != nil && req.AsOfTime != nil:
		return at, now, invalid("asOfTime", "is given beside asOfSeq; give one of them")
	case req.GetAsOfSeq() > run.LastSeq:
		return at, now, invalid("asOfSeq", fmt.Sprintf("is %d, and the run is at %d; minSeq waits for it", req.GetAsOfSeq(), run.LastSeq))
	case req.AsOfSeq != nil:
		at.Seq = *req.AsOfSeq
	case req.AsOfTime != nil:
		if at.Time, err = bound("asOfTime", req.AsOfTime); err != nil {
			return at, now, err
		}
		then := req.AsOfTime.AsTime()
		if then.After(now) {
			return at, now, invalid("asOfTime", "is in the future")
		}
		if at.Time < run.CreatedAt {
			return at, now, &contract.Error{Reason: contract.ReasonRunNotFound,
				Message: fmt.Sprintf("run %s did not exist yet at %s: it began at %s", contract.Quote(run.RunID),
					then.Format(time.RFC3339Nano), run.Created().Format(time.RFC3339Nano)),
				Metadata: map[string]string{"run_id": run.RunID, "created_at": run.Created().Format(time.RFC3339Nano)}}
		}
		now = then
	}
	return at, now, nil
}

// ProjectRun folds a run again from its first event, and compares the result with what is served.
func (p *projectionService) ProjectRun(ctx context.Context, req *runlogv1.ProjectRunRequest) (_ *runlogv1.ProjectRunResponse, err error) {
	v, err := p.s.view(ctx, req.RunId, req.Consistency, 0)
	if err != nil {
		return nil, statusOf(err)
	}
	defer func() { err = statusOf(errors.Join(err, v.Close())) }()
	snapshot, matches, err := p.s.projector.ProjectRun(ctx, v.View)
	if err != nil {
		return nil, err
	}
	return &runlogv1.ProjectRunResponse{
		Snapshot: p.s.encodeSnapshotAt(snapshot, p.s.opts.Clock()), MatchesStored: matches, Applied: v.applied(),
	}, nil
}
