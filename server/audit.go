package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

type auditService struct {
	runlogv1.UnimplementedAuditServiceServer
	s *Server
}

// pageTime closes a page early that has to look for long.
const pageTime = 500 * time.Millisecond

// QueryEvents returns a page of a window (READ-3, READ-4).
func (a *auditService) QueryEvents(ctx context.Context, req *runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error) {
	size, err := pageSize(req.PageSize, maxPage, maxPage)
	if err != nil {
		return nil, statusOf(err)
	}
	w, err := a.s.parseWindow(ctx, req)
	if err != nil {
		return nil, statusOf(err)
	}
	answer, err := a.s.closeWindow(ctx, w)
	if err != nil {
		return nil, statusOf(err)
	}
	resp := &runlogv1.QueryEventsResponse{
		CompleteThrough: timestamp(answer.through), Closed: answer.closed(w), From: instant(w.from), To: instant(w.to),
	}
	more, err := a.s.windowPage(ctx, w, answer.positions, size, req.PayloadForm, resp)
	if err != nil {
		return nil, statusOf(err)
	}
	resp.Count, resp.Digest = w.at.count, w.at.digest.String()
	if more {
		resp.NextPageToken = a.s.windowToken(w)
	}
	return resp, nil
}

// instant is timestamp for a time that may be the beginning of 1970.
func instant(ns int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(0, ns)) }

// windowPage reads the events of a page, and tells whether there may be more.
func (s *Server) windowPage(
	ctx context.Context, w *window, st storage.PositionRange, size int, form runlogv1.PayloadForm_Form, resp *runlogv1.QueryEventsResponse,
) (more bool, err error) {
	r, err := s.store.OpenWindow(st, w.filter, w.at.cursor)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	bytes := 0
	for begun := time.Now(); len(resp.Events) < size && bytes < pageBytes && time.Since(begun) < pageTime; {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		// A few at a time, since payloads may be large.
		var records []storage.Record
		if records, more, err = r.Next(min(size-len(resp.Events), 64)); err != nil {
			return false, err
		}
		for i := range records {
			m, err := encodeRecord(&records[i], form)
			if err != nil {
				return false, err
			}
			w.at.add(&records[i])
			bytes += proto.Size(m)
			resp.Events = append(resp.Events, m)
		}
		if w.at.cursor = r.Cursor(); !more {
			return false, nil
		}
	}
	return true, nil
}

// VerifyRun reads a run from the disk of the node that is asked, and works out its chain anew
// (APP-11).
func (a *auditService) VerifyRun(ctx context.Context, req *runlogv1.VerifyRunRequest) (_ *runlogv1.VerifyRunResponse, err error) {
	v, err := a.s.view(ctx, req.RunId, runlogv1.Consistency_LINEARIZABLE, 0)
	if err != nil {
		return nil, statusOf(err)
	}
	defer func() { err = statusOf(errors.Join(err, v.Close())) }()
	found, err := v.Verify(ctx)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.VerifyRunResponse{
		Ok: found.FirstBadSeq == 0, Verified: found.Verified, Problem: found.Problem,
		Head: &runlogv1.RunHead{
			LastSeq: v.Run.LastSeq, PersistedAt: timestamp(v.Run.PersistedAt), ChainDigest: contract.Digest(v.Run.Chain).String(),
		},
	}
	if !resp.Ok {
		resp.FirstBadSeq = &found.FirstBadSeq
		a.s.log.Error("a run is not as it was recorded", "run", req.RunId, "runSeq", found.FirstBadSeq, "problem", found.Problem)
	}
	return resp, nil
}
