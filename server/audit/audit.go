package audit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// Node is the part of the replica that the service needs.
type Node interface {
	View(ctx context.Context, runID string, level runlogv1.Consistency_Level, minSeq uint64) (*replica.Reading, error)
	ReadIndex(context.Context) error
	CloseThrough(ctx context.Context, at int64) (storage.Position, int64, error)
	Await(context.Context, storage.Position) error
	// Busy reports whether appends are in flight.
	Busy() bool
	Store() *storage.Store
	ClusterID() storage.ClusterID
}

// Options configure the service. All are required.
type Options struct {
	Node    Node
	Seen    Seen
	Records Records
	Signer  *Signer
	// ClusterName is the cluster's id as clients know it.
	ClusterName string
	// SlowConsumer is how long one message of an export may wait for its reader.
	SlowConsumer time.Duration
	// Memory is the budget from which messages of exports draw.
	Memory *budget.Budget
	Clock  func() time.Time
	Logger *slog.Logger
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
}

// Service is AuditService. Close ends it, after its calls.
type Service struct {
	runlogv1.UnimplementedAuditServiceServer
	opts    Options
	node    Node
	exports atomic.Int64   // in progress
	sends   sync.WaitGroup // messages of exports in Send; they end with their calls
}

var _ runlogv1.AuditServiceServer = (*Service)(nil)

// New makes the service.
func New(opts Options) *Service { return &Service{opts: opts, node: opts.Node} }

// Close waits for messages in Send. All calls must have ended.
func (s *Service) Close() error {
	s.sends.Wait()
	return nil
}

// pageTime ends a page early if few events match.
const pageTime = 500 * time.Millisecond

// QueryEvents returns a page of a window (READ-3, READ-4).
func (s *Service) QueryEvents(ctx context.Context, req *runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error) {
	size, err := rpc.PageSize(req.PageSize, wire.MaxPage, wire.MaxPage)
	if err != nil {
		return nil, err
	}
	w, err := s.parseWindow(ctx, req)
	if err != nil {
		return nil, err
	}
	answer, err := s.closeWindow(ctx, w)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.QueryEventsResponse{
		CompleteThrough: wire.Timestamp(answer.through), Closed: answer.closed(w), From: wire.Instant(w.from), To: wire.Instant(w.to),
	}
	more, err := s.windowPage(ctx, w, answer.positions, size, req.PayloadForm, resp)
	if err != nil {
		return nil, err
	}
	resp.Count, resp.Digest = w.at.count, w.at.digest.String()
	if req.PageToken == "" {
		if resp.Unseen, err = s.unseen(ctx, &w.filter, resp.Events); err != nil {
			return nil, err
		}
	}
	if more {
		resp.NextPageToken = s.windowToken(w)
	}
	return resp, nil
}

// windowPage reads the events of a page and reports whether there may be more.
func (s *Service) windowPage(
	ctx context.Context, w *window, st storage.PositionRange, size int, form runlogv1.PayloadForm_Form, resp *runlogv1.QueryEventsResponse,
) (more bool, err error) {
	r, err := s.node.Store().OpenWindow(st, w.filter, w.at.cursor)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	grant, err := s.opts.Memory.Acquire(budget.Shared, 0)
	if err != nil {
		return false, err
	}
	defer func() { grant.Release() }() // From here on the answer counts itself.
	bytes := 0
	for begun := time.Now(); len(resp.Events) < size && bytes < wire.PageBytes && time.Since(begun) < pageTime; {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		// One at a time, so that PageBytes bounds the page (READ-8).
		var records []storage.Record
		if records, more, err = r.Next(1); err != nil {
			return false, err
		}
		for i := range records {
			m, err := wire.Record(&records[i], form)
			if err != nil {
				return false, err
			}
			w.at.add(&records[i])
			size := proto.Size(m)
			bytes += size
			if err := grant.Grow(wire.PageForms * int64(size)); err != nil {
				return false, err
			}
			resp.Events = append(resp.Events, m)
		}
		if w.at.cursor = r.Cursor(); !more {
			return false, nil
		}
	}
	return true, nil
}

// VerifyRun reads a run from the answering node's disk and recomputes its chain digests (APP-11).
func (s *Service) VerifyRun(ctx context.Context, req *runlogv1.VerifyRunRequest) (_ *runlogv1.VerifyRunResponse, err error) {
	v, err := s.node.View(ctx, req.RunId, runlogv1.Consistency_LINEARIZABLE, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	found, err := v.Verify(ctx)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.VerifyRunResponse{
		Ok: found.FirstBadSeq == 0, Verified: found.Verified, Problem: found.Problem,
		Head: &runlogv1.RunHead{
			LastSeq: v.Run.LastSeq, PersistedAt: wire.Timestamp(v.Run.PersistedAt), ChainDigest: contract.Digest(v.Run.Chain).String(),
		},
	}
	if !resp.Ok {
		resp.FirstBadSeq = &found.FirstBadSeq
		s.opts.Logger.Error("run differs from its recorded digests", "run", req.RunId, "runSeq", found.FirstBadSeq, "problem", found.Problem)
	}
	return resp, nil
}
