package snapshots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runlog/projector"
	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// Node is the part of the replica that the service needs.
type Node interface {
	View(ctx context.Context, runID string, level runlogv1.Consistency_Level, minSeq uint64) (*replica.Reading, error)
	Readable(ctx context.Context, runID string, level runlogv1.Consistency_Level) error
	Open(ctx context.Context, runID string, minSeq uint64) (*replica.Reading, error)
	Store() *storage.Store
}

// Options configure the service. All are required.
type Options struct {
	Node      Node
	Projector *projector.Projector
	Encoded   *wire.Snapshots
	Clock     func() time.Time
}

// Service is the part of ProjectionService that answers with snapshots.
type Service struct {
	opts Options
	node Node
}

// New makes the service.
func New(opts Options) *Service { return &Service{opts: opts, node: opts.Node} }

// GetSnapshot returns the fold of a run's events, at least as new as requested (READ-2).
func (s *Service) GetSnapshot(ctx context.Context, req *runlogv1.GetSnapshotRequest) (_ *runlogv1.GetSnapshotResponse, err error) {
	if err := s.node.Readable(ctx, req.RunId, req.Consistency); err != nil {
		return nil, err
	}
	if answer := s.live(req); answer != nil {
		return answer, nil
	}
	v, err := s.node.Open(ctx, req.RunId, req.MinSeq)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	at, now, err := s.asOf(req, v.Run)
	if err != nil {
		return nil, err
	}
	var snapshot *run.Snapshot
	if at == projector.Always {
		snapshot, err = s.opts.Projector.Snapshot(v.View)
	} else {
		snapshot, err = s.opts.Projector.SnapshotAsOf(ctx, v.View, at)
	}
	if err != nil {
		return nil, err
	}
	if req.AsOfSeq != nil && snapshot.LastEventSeq > 0 {
		now = snapshot.PersistedAt
	}
	res := &runlogv1.GetSnapshotResponse{Snapshot: s.opts.Encoded.At(snapshot, now), Applied: rpc.Applied(v.At)}
	res.Snapshot.Stale = at == projector.Always && s.opts.Projector.Stale(req.RunId)
	return res, nil
}

// live answers from memory if the projector's memory has all applied entries: it then opens no view
// of the store. It returns nil otherwise, and for a request about the past.
func (s *Service) live(req *runlogv1.GetSnapshotRequest) *runlogv1.GetSnapshotResponse {
	if req.AsOfSeq != nil || req.AsOfTime != nil {
		return nil
	}
	at := s.node.Store().Applied()
	snapshot := s.opts.Projector.Live(req.RunId, at.Position())
	if snapshot == nil || snapshot.LastEventSeq < req.MinSeq {
		return nil
	}
	return &runlogv1.GetSnapshotResponse{Snapshot: s.opts.Encoded.At(snapshot, s.opts.Clock()), Applied: rpc.Applied(at)}
}

// asOf returns the moment that a request names, and the current time from its point of view.
func (s *Service) asOf(req *runlogv1.GetSnapshotRequest, run *storage.Run) (at projector.AsOf, now time.Time, err error) {
	at, now = projector.Always, s.opts.Clock()
	switch {
	case req.AsOfSeq != nil && req.AsOfTime != nil:
		return at, now, rpc.Invalid("asOfTime", "is set together with asOfSeq; set one of them")
	case req.GetAsOfSeq() > run.LastSeq:
		return at, now, rpc.Invalid("asOfSeq", fmt.Sprintf("is %d, and the run is at %d; minSeq waits for it", req.GetAsOfSeq(), run.LastSeq))
	case req.AsOfSeq != nil:
		at.Seq = *req.AsOfSeq
	case req.AsOfTime != nil:
		if at.Time, err = rpc.Bound("asOfTime", req.AsOfTime); err != nil {
			return at, now, err
		}
		then := req.AsOfTime.AsTime()
		if then.After(now) {
			return at, now, rpc.Invalid("asOfTime", "is in the future")
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

// ProjectRun folds a run again from its first event and compares the result with the stored
// snapshot.
func (s *Service) ProjectRun(ctx context.Context, req *runlogv1.ProjectRunRequest) (_ *runlogv1.ProjectRunResponse, err error) {
	v, err := s.node.View(ctx, req.RunId, req.Consistency, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snapshot, matches, err := s.opts.Projector.ProjectRun(ctx, v.View)
	if err != nil {
		return nil, err
	}
	return &runlogv1.ProjectRunResponse{
		Snapshot: s.opts.Encoded.At(snapshot, s.opts.Clock()), MatchesStored: matches, Applied: rpc.Applied(v.At),
	}, nil
}
