package snapshots

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"runlog/projector"
	"runlog/projector/run"
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
	rpc.MomentNode
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
	moment, err := s.momentOf(ctx, req, req.AsOfSeq, req.MinSeq)
	if err != nil {
		return nil, err
	}
	if req.StepsPageToken != "" {
		return s.page(ctx, req, &moment)
	}
	if moment.Kind == rpc.MomentNow {
		if answer := s.quick(ctx, req); answer != nil {
			return answer, nil
		}
	}
	v, err := s.node.Open(ctx, req.RunId, req.MinSeq)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := exists(&moment, v.Run); err != nil {
		return nil, err
	}
	if moment.Kind == rpc.MomentNow {
		snapshot, err := s.opts.Projector.Snapshot(v.View)
		if err != nil {
			return nil, err
		}
		return s.answer(req, v.Run, snapshot, v.At), nil
	}
	snapshot, err := s.opts.Projector.SnapshotAsOf(ctx, v.View, moment.At)
	if err != nil {
		return nil, err
	}
	now, err := moment.Now(s.node.Store(), snapshot.PersistedAt, s.opts.Clock())
	if err != nil {
		return nil, err
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
func (s *Service) page(ctx context.Context, req *runlogv1.GetSnapshotRequest, moment *rpc.Moment) (_ *runlogv1.GetSnapshotResponse, err error) {
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
	if err := exists(moment, v.Run); err != nil {
		return nil, err
	}
	at := moment.At
	var snapshot *run.Snapshot
	if moment.Kind == rpc.MomentNow {
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
	case moment.Kind != rpc.MomentNow:
		return nil, contradicts(moment.Field, token)
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

// momentRequest is a request for the state of a run at a moment.
type momentRequest interface {
	rpc.MomentFields
	GetRunId() string
	GetConsistency() runlogv1.Consistency_Level
}

// momentOf returns the moment that a request names, once the run may be read and the node has
// everything up to the moment.
func (s *Service) momentOf(ctx context.Context, req momentRequest, seq *uint64, minSeq uint64) (rpc.Moment, error) {
	if err := s.node.Readable(ctx, req.GetRunId(), req.GetConsistency()); err != nil {
		return rpc.Moment{}, err
	}
	moment, err := rpc.AsOf(req, seq, s.node.Store().Incarnation())
	if err != nil {
		return moment, err
	}
	return moment, moment.Reach(ctx, closer{s.node, req.GetRunId(), minSeq}, req.GetConsistency(), s.opts.Clock)
}

// closer makes the leader close a time for a caller that sees a run. Others get the error of Open,
// and cause no proposal.
type closer struct {
	Node
	runID  string
	minSeq uint64
}

func (c closer) CloseThrough(ctx context.Context, at int64) (storage.Position, int64, error) {
	v, err := c.Open(ctx, c.runID, c.minSeq)
	if err == nil {
		err = v.Close()
	}
	if err != nil {
		return 0, 0, err
	}
	return c.Node.CloseThrough(ctx, at)
}

// exists refuses a moment that the run has not reached, and one before the run was created.
func exists(moment *rpc.Moment, r *storage.Run) error {
	before, err := moment.In(r)
	if err == nil && before {
		return moment.Before(r)
	}
	return err
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
