package events

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
)

// ListEvents returns a page of a run's events, in runSeq order (READ-1, READ-2).
func (s *Service) ListEvents(ctx context.Context, req *runlogv1.ListEventsRequest) (_ *runlogv1.ListEventsResponse, err error) {
	size, err := rpc.PageSize(req.PageSize, wire.MaxPage, wire.MaxPage)
	if err != nil {
		return nil, err
	}
	if err := rpc.CheckTypes(req.Types).Err(); err != nil {
		return nil, err
	}
	v, err := s.node.View(ctx, req.RunId, req.Consistency, req.MinSeq)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	etag := wire.EventsETag(v.Run)
	if wire.MatchETag(req.IfNoneMatch, etag) {
		same := true
		return &runlogv1.ListEventsResponse{Etag: etag, NotModified: &same, LastSeq: v.Run.LastSeq, Applied: rpc.Applied(v.At)}, nil
	}
	p, err := wire.ReadPage(ctx, v.View, wire.PageQuery{After: req.AfterSeq, Last: v.Run.LastSeq, Size: size, Types: req.Types, Form: req.PayloadForm, Memory: s.opts.Memory})
	if err != nil {
		return nil, err
	}
	defer p.Release()
	return &runlogv1.ListEventsResponse{
		Events: p.Events, NextAfterSeq: p.Next, LastSeq: v.Run.LastSeq, Applied: rpc.Applied(v.At), Etag: etag,
	}, nil
}

// ReadEvents streams a run's events in runSeq order, up to the last event at its begin (READ-1). It
// holds no view of the store while it waits for a slow reader.
func (s *Service) ReadEvents(req *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
	r, err := s.node.View(stream.Context(), req.RunId, req.Consistency, 0)
	if err != nil {
		return err
	}
	v, last, left := r.View, r.Run.LastSeq, req.Limit
	for after := req.AfterSeq; ; {
		size := wire.StreamBatch
		if req.Limit > 0 {
			size = int(min(left, wire.StreamBatch))
		}
		p, err := wire.ReadPage(stream.Context(), v, wire.PageQuery{After: after, Last: last, Size: size, Form: req.PayloadForm, Memory: s.opts.Memory})
		if err := errors.Join(err, v.Close()); err != nil {
			p.Release()
			return err
		}
		if len(p.Events) > 0 {
			err := stream.Send(&runlogv1.ReadEventsResponse{Events: p.Events, LastSeq: last})
			p.Release()
			if err != nil {
				return err
			}
		}
		left -= min(left, uint64(len(p.Events)))
		if p.Next == 0 || req.Limit > 0 && left == 0 {
			return nil
		}
		after = p.Next
		if v, err = s.node.Store().View(req.RunId); err != nil {
			return err
		}
	}
}
