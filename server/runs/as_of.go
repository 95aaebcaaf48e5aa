package runs

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/projector"
	"runlog/projector/list"
	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

const (
	// asOfRows is how many rows of the list are read at a time, and mostAsOfRows how many for one
	// page.
	asOfRows     = 1000
	mostAsOfRows = 10_000
	// mostAsOfEvents bounds the events that are folded for one page. It may exceed it with the last
	// run that it folds.
	mostAsOfEvents = 20_000
)

// listAsOf is a page of a list of runs as of a moment (TR-7). The list is one of the present, whose
// rows change with each event. So the page walks over the runs that had been created at the moment,
// and folds those that have had events since then. Of all others the row is still the same.
type listAsOf struct {
	moment rpc.Moment
	filter run.Filter
	token  *pageToken
	size   int

	position storage.Position // of the moment
	stamp    int64            // of the last proposal up to there
	now      time.Time        // the time at the moment
	rows     []*runlogv1.Run
	bytes    int
	looked   int // rows
	folded   int // events
}

// full reports whether the page ends.
func (p *listAsOf) full() bool {
	return len(p.rows) == p.size || p.looked >= mostAsOfRows || p.folded >= mostAsOfEvents || p.bytes >= wire.PageBytes
}

// listAsOf answers a request for a list as of a moment. The first page finds the position of the
// moment, and the others keep it.
func (s *Service) listAsOf(ctx context.Context, req *runlogv1.ListRunsRequest, p *listAsOf) (*runlogv1.ListRunsResponse, error) {
	if req.Count {
		return nil, rpc.Invalid("count", "counts the runs as they are now: leave it out, or leave out the moment")
	}
	if err := s.findMoment(ctx, req, p); err != nil {
		return nil, err
	}
	least, err := s.leastAsOf(req, p)
	if err != nil {
		return nil, err
	}
	present := p.filter // what does not change of a run
	present.Statuses, present.StartedAfter, present.StartedBefore = 0, 0, 0
	if until := p.stamp + 1; present.CreatedBefore == 0 || present.CreatedBefore > until {
		present.CreatedBefore = until
	}
	next := p.token.place
	for {
		waiting, cancel := s.node.Waiting(ctx) // The folds take as long as they need.
		found, err := s.page(waiting, least, present, &pageToken{place: next}, asOfRows)
		cancel()
		if err != nil {
			return nil, err
		}
		for i := range found.Runs {
			if p.full() {
				break
			}
			r, err := s.rowAsOf(ctx, p, &found.Runs[i])
			if err != nil {
				return nil, err
			}
			p.looked++
			next = list.After(r.CreatedAt, r.RunID, p.filter.OldestFirst)
			if i == len(found.Runs)-1 {
				next = found.Next
			}
		}
		if len(found.Runs) == 0 {
			next = found.Next
			p.looked += asOfRows // It has looked at many rows of which none was asked for.
		}
		if next == nil || p.full() {
			break
		}
	}
	in := s.node.Store().Incarnation()
	rest := pageToken{position: p.position, place: next}
	return &runlogv1.ListRunsResponse{
		Runs: p.rows, NextPageToken: rest.format(in, &p.filter, p.moment),
		Applied: &runlogv1.AppliedState{Position: rpc.FormatPosition(in, p.position), PersistedAt: wire.Timestamp(p.stamp)},
	}, nil
}

// findMoment finds the position of the moment, once this node has everything up to there.
func (s *Service) findMoment(ctx context.Context, req *runlogv1.ListRunsRequest, p *listAsOf) (err error) {
	store := s.node.Store()
	if p.token.place != nil {
		p.position = p.token.position
		at := rpc.Moment{Kind: rpc.MomentPosition, Field: "pageToken", At: projector.Always}
		at.At.Position = p.position
		err = at.Reach(ctx, s.node, req.Consistency, s.opts.Clock)
	} else if err = p.moment.Reach(ctx, s.node, req.Consistency, s.opts.Clock); err == nil {
		p.position = p.moment.At.Position
		if p.moment.Kind == rpc.MomentTime {
			var until storage.PositionRange
			if until, _, err = store.PositionRange(0, min(p.moment.At.Time, math.MaxInt64-1)+1); err == nil && until.End > 0 {
				p.position = until.End - 1
			} else {
				p.position = 0
			}
		}
	}
	if err != nil {
		return err
	}
	if p.stamp, err = store.StampUpTo(p.position); err != nil {
		return err
	}
	p.now, err = p.moment.Now(store, time.Time{}, s.opts.Clock())
	return err
}

// leastAsOf returns the position that the list must show at least. What it has up to the moment is
// enough: later events are folded away. But the labels of a filter are those of now.
func (s *Service) leastAsOf(req *runlogv1.ListRunsRequest, p *listAsOf) (storage.Position, error) {
	if len(p.filter.Labels) > 0 {
		return s.least(req, &pageToken{position: p.position})
	}
	least, err := s.minPosition(req)
	return max(least, p.position), err
}

// rowAsOf adds a run to the page if it was as the filter asks.
func (s *Service) rowAsOf(ctx context.Context, p *listAsOf, found *run.Listed) (r *storage.Run, err error) {
	v, err := s.node.Store().View(found.RunID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	r, summary, lastSeq := v.Run, found.Summary, v.Run.LastSeq
	if r.Position > p.position {
		at := projector.Always
		at.Position = p.position
		snapshot, err := run.FoldUntil(ctx, v, run.Empty(r), func(rec *storage.Record) bool {
			p.folded++
			return at.Past(rec)
		})
		if err != nil {
			return nil, err
		}
		summary, lastSeq = run.SummaryOf(snapshot), snapshot.LastEventSeq
	}
	if !p.filter.Statuses.Match(summary.Status) || !p.filter.Started(summary.StartedAt) {
		return r, nil
	}
	then := *r
	then.LastSeq = lastSeq
	m := s.opts.Encoded.Run(&then, &summary, p.now)
	p.rows, p.bytes = append(p.rows, m), p.bytes+proto.Size(m)
	return r, nil
}
