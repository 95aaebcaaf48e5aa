package snapshots

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"runlog/projector"
	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
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

// GetSnapshot returns the fold of a run's events, at least as new as requested (READ-2), with the
// run's metadata as it is now (PRJ-16), or a page of it (READ-8).
func (s *Service) GetSnapshot(ctx context.Context, req *runlogv1.GetSnapshotRequest) (_ *runlogv1.GetSnapshotResponse, err error) {
	if req.MaxAnswerBytes > wire.MostAnswerBytes {
		return nil, rpc.Invalid("maxAnswerBytes", fmt.Sprintf("is %d, at most %d", req.MaxAnswerBytes, wire.MostAnswerBytes))
	}
	if err := s.node.Readable(ctx, req.RunId, req.Consistency); err != nil {
		return nil, err
	}
	if req.StepsPageToken != "" {
		return s.page(ctx, req)
	}
	if req.AsOfSeq == nil && req.AsOfTime == nil {
		if answer := s.quick(ctx, req); answer != nil {
			return answer, nil
		}
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
	if at == projector.Always {
		return s.answer(req, v.Run, snapshot, v.At), nil
	}
	m, next := s.opts.Encoded.Page(snapshot, v.Run.Metadata, now, firstPage(req))
	return &runlogv1.GetSnapshotResponse{Snapshot: m, Applied: rpc.Applied(v.At), NextStepsPageToken: s.token(snapshot, next)}, nil
}

func firstPage(req *runlogv1.GetSnapshotRequest) wire.PageOfSnapshot {
	q := wire.FirstPage(req.MaxAnswerBytes)
	q.Steps = int(req.StepsPageSize)
	return q
}

func (s *Service) token(snapshot *run.Snapshot, next *wire.Place) string {
	return rpc.FormatSnapshotToken(s.node.Store().Incarnation(), snapshot, next)
}

// page returns the page of a token. It is from the snapshot of the first page, which is folded
// again if the run has moved on.
func (s *Service) page(ctx context.Context, req *runlogv1.GetSnapshotRequest) (_ *runlogv1.GetSnapshotResponse, err error) {
	token, err := rpc.ParseSnapshotToken(req.StepsPageToken, s.node.Store().Incarnation(), req.RunId)
	if err != nil {
		return nil, err
	}
	if req.MinSeq > token.Seq {
		return nil, contradicts("minSeq", token)
	}
	v, err := s.node.Open(ctx, req.RunId, token.Seq)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	at, _, err := s.asOf(req, v.Run)
	if err != nil {
		return nil, err
	}
	var snapshot *run.Snapshot
	if at == projector.Always {
		snapshot, err = s.opts.Projector.Snapshot(v.View)
		at.Seq = token.Seq
	}
	if err == nil && (snapshot == nil || !token.Of(snapshot)) {
		snapshot, err = s.opts.Projector.SnapshotAsOf(ctx, v.View, at)
	}
	switch {
	case err != nil:
		return nil, err
	case token.Of(snapshot):
	case req.AsOfSeq != nil:
		return nil, contradicts("asOfSeq", token)
	case req.AsOfTime != nil:
		return nil, contradicts("asOfTime", token)
	default:
		return nil, rpc.Invalid("stepsPageToken", fmt.Sprintf("is of the snapshot at runSeq %d, which the events of the run no longer give: "+
			"omit it to start again with the present snapshot", token.Seq))
	}
	q := firstPage(req)
	q.From = token.Place
	m, next := s.opts.Encoded.Page(snapshot, nil, time.Time{}, q)
	return &runlogv1.GetSnapshotResponse{Snapshot: m, Applied: rpc.Applied(v.At), NextStepsPageToken: s.token(snapshot, next)}, nil
}

// contradicts refuses a field that names another snapshot than the token of the same request.
func contradicts(field string, t *rpc.SnapshotToken) error {
	return rpc.Invalid(field, fmt.Sprintf("names another snapshot than stepsPageToken, which is of the one at runSeq %d: "+
		"leave it out, or omit stepsPageToken to start again", t.Seq))
}

// answer returns the answer with a run's newest snapshot, or that it is not modified.
func (s *Service) answer(req *runlogv1.GetSnapshotRequest, r *storage.Run, snapshot *run.Snapshot, at storage.Applied) *runlogv1.GetSnapshotResponse {
	m, next := s.opts.Encoded.Page(snapshot, r.Metadata, s.opts.Clock(), firstPage(req))
	m.Stale = s.opts.Projector.Stale(r.RunID)
	var passing []string
	if m.Stale || m.Substatus != nil {
		passing = []string{strconv.FormatBool(m.Stale), m.GetSubstatus()}
	}
	etag := wire.SnapshotETag(r, snapshot.LastEventSeq, passing...)
	if wire.MatchETag(req.IfNoneMatch, etag) {
		return notModified(etag, at)
	}
	return &runlogv1.GetSnapshotResponse{Snapshot: m, Applied: rpc.Applied(at), Etag: etag, NextStepsPageToken: s.token(snapshot, next)}
}

func notModified(etag string, at storage.Applied) *runlogv1.GetSnapshotResponse {
	same := true
	return &runlogv1.GetSnapshotResponse{Etag: etag, NotModified: &same, Applied: rpc.Applied(at)}
}

// quick answers without a view of the store, if it can; otherwise it returns nil.
//
// A caller that has the tag of everything that is stored has the run's snapshot. The tag of a
// snapshot that is STALE or DRAINING is another one: both end without an event. Else the
// projector's memory may have everything that is applied.
func (s *Service) quick(ctx context.Context, req *runlogv1.GetSnapshotRequest) *runlogv1.GetSnapshotResponse {
	at := s.node.Store().Applied()
	snapshot := s.opts.Projector.Live(req.RunId, at.Position())
	if req.IfNoneMatch == "" && snapshot == nil {
		return nil
	}
	r, err := s.node.Store().Run(req.RunId)
	if err != nil || r.LastSeq < req.MinSeq || !auth.From(ctx).Sees(r.Scope.TenantID) {
		return nil // Open waits, and knows the error.
	}
	if etag := wire.SnapshotETag(r, r.LastSeq); req.IfNoneMatch != "" && wire.MatchETag(req.IfNoneMatch, etag) && !s.opts.Projector.Stale(req.RunId) {
		return notModified(etag, at)
	}
	if snapshot == nil || snapshot.LastEventSeq < req.MinSeq {
		return nil
	}
	return s.answer(req, r, snapshot, at)
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
	m, next := s.opts.Encoded.Page(snapshot, v.Run.Metadata, s.opts.Clock(), wire.FirstPage(0))
	return &runlogv1.ProjectRunResponse{
		Snapshot: m, MatchesStored: matches, Applied: rpc.Applied(v.At), NextStepsPageToken: s.token(snapshot, next),
	}, nil
}
