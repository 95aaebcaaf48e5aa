package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"runlog/projector"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// leaderWait is how long a watch waits for a node that does not lead yet.
const leaderWait = 5 * time.Second

type projectionService struct {
	runlogv1.UnimplementedProjectionServiceServer
	s *Server
}

// GetSnapshot returns the fold of a run's events, never older than asked for (READ-2).
func (p *projectionService) GetSnapshot(ctx context.Context, req *runlogv1.GetSnapshotRequest) (_ *runlogv1.GetSnapshotResponse, err error) {
	v, err := p.s.view(ctx, req.RunId, req.Consistency, req.MinSeq)
	if err != nil {
		return nil, statusOf(err)
	}
	defer func() { err = statusOf(errors.Join(err, v.Close())) }()
	at, now, err := p.s.asOf(req, v.Run)
	if err != nil {
		return nil, err
	}
	var snapshot *projector.Snapshot
	if at == projector.Always {
		snapshot, err = p.s.projector.Snapshot(v.View)
	} else {
		snapshot, err = p.s.projector.SnapshotAsOf(ctx, v.View, at)
	}
	if err != nil {
		return nil, err
	}
	if req.AsOfSeq > 0 {
		now = snapshot.PersistedAt
	}
	return &runlogv1.GetSnapshotResponse{Snapshot: p.s.encodeSnapshotAt(snapshot, now), Applied: v.applied()}, nil
}

// encodeSnapshotAt adds to a snapshot what depends on the moment at which it is looked at (PRJ-9).
func (s *Server) encodeSnapshotAt(snapshot *projector.Snapshot, now time.Time) *runlogv1.RunSnapshot {
	substatus, message := snapshot.Substatus(now, s.opts.DrainTimeout)
	return encodeSnapshot(snapshot, substatus, message)
}

// asOf returns the moment that a request for a snapshot names, and the time at which its reader stands.
func (s *Server) asOf(req *runlogv1.GetSnapshotRequest, run *storage.Run) (at projector.AsOf, now time.Time, err error) {
	at, now = projector.Always, s.opts.Clock()
	switch {
	case req.AsOfSeq > 0 && req.AsOfTime != nil:
		return at, now, invalid("asOfTime", "is given beside asOfSeq; give one of them")
	case req.AsOfSeq > run.LastSeq:
		return at, now, invalid("asOfSeq", fmt.Sprintf("is %d, and the run is at %d; minSeq waits for it", req.AsOfSeq, run.LastSeq))
	case req.AsOfSeq > 0:
		at.Seq = req.AsOfSeq
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

// WatchRun yields watermarks: first where the run is, then every change, conflated to the newest for a
// slow reader (WATCH-1, WATCH-3), and a heartbeat when nothing happens (WATCH-4).
func (p *projectionService) WatchRun(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
	after := req.AfterSeq
	if req.ResumeToken != "" {
		var err error
		if after, err = parseWatchToken(req.ResumeToken); err != nil {
			return statusOf(err)
		}
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	// A stopping node ends its streams; clients resume elsewhere.
	defer context.AfterFunc(p.s.stopping, func() { cancel(errStopping) })()
	return statusOf(p.watch(ctx, req.RunId, after, stream))
}

var errStopping = &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping; resume the watch on another"}

func (p *projectionService) watch(ctx context.Context, runID string, after uint64, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
	// Subscribe first, read second: what happens in between is seen twice, never not at all.
	sub, err := p.s.projector.Subscribe(runID)
	if err != nil {
		return tooManyWatchers(err)
	}
	defer sub.Close()
	// A browser gives an EventSource up for good when it is refused: a node that is about to lead is waited for.
	starting, cancel := context.WithTimeout(ctx, leaderWait)
	_ = p.s.node.WaitLeading(starting)
	cancel()
	v, err := p.s.view(ctx, runID, runlogv1.Consistency_LINEARIZABLE, 0)
	if err != nil {
		return err
	}
	current, err := p.s.projector.Snapshot(v.View)
	if err := errors.Join(err, v.Close()); err != nil {
		return err
	}
	w := watch{s: p.s, stream: stream, sent: after}
	if err := w.catchUp(current); err != nil {
		return err
	}
	for {
		idle, cancel := context.WithTimeout(ctx, p.s.opts.Heartbeat)
		next, err := sub.Next(idle)
		cancel()
		switch {
		case err == nil:
			// A watch may begin ahead of the projector, which then publishes what the reader knows (WATCH-3).
			if next.LastEventSeq > current.LastEventSeq {
				current = next
			}
			err = w.watermark(current, p.s.lag(current))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			err = w.heartbeat(current)
		}
		if err != nil {
			return err
		}
	}
}

func tooManyWatchers(err error) error {
	if !errors.Is(err, projector.ErrTooManyWatchers) {
		return err
	}
	return tooManyStreams()
}

func tooManyStreams() *contract.Error {
	return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: time.Second,
		Message: "the node serves as many streams as it may"}
}

// watch is one stream of watermarks.
type watch struct {
	s      *Server
	stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]
	sent   uint64 // the highest lastEventSeq sent; never goes back (WATCH-3)
}

func (w *watch) catchUp(s *projector.Snapshot) error {
	if err := w.watermark(s, 0); err != nil {
		return err
	}
	return w.send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_CaughtUp{
		CaughtUp: &runlogv1.CaughtUp{Watermark: w.encode(s, 0)},
	}})
}

// watermark sends a snapshot's watermark unless the reader is there already. The lag of what a reader
// catches up on is 0: it was served long before.
func (w *watch) watermark(s *projector.Snapshot, lag time.Duration) error {
	if s.LastEventSeq <= w.sent {
		return nil
	}
	w.sent = s.LastEventSeq
	return w.send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: w.encode(s, lag)}})
}

func (w *watch) heartbeat(s *projector.Snapshot) error {
	return w.send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Heartbeat{
		Heartbeat: &runlogv1.Heartbeat{Watermark: w.encode(s, 0)},
	}})
}

func (w *watch) send(m *runlogv1.WatchRunResponse) error {
	m.ResumeToken = formatWatchToken(w.sent)
	return w.stream.Send(m)
}

func (w *watch) encode(s *projector.Snapshot, lag time.Duration) *runlogv1.Watermark {
	substatus, _ := s.Substatus(w.s.opts.Clock(), w.s.opts.DrainTimeout)
	return &runlogv1.Watermark{
		RunId:        s.RunID,
		LastEventSeq: s.LastEventSeq,
		Status:       runlogv1.RunStatus_Value(s.Status),
		Substatus:    optional(substatus),
		PersistedAt:  optionalTime(s.PersistedAt),
		LagMs:        lag.Milliseconds(),
	}
}

// lag is the time from a snapshot's newest event to now (PRJ-11).
func (s *Server) lag(snapshot *projector.Snapshot) time.Duration {
	return max(0, s.opts.Clock().Sub(snapshot.PersistedAt))
}
