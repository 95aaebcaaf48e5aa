package projector

import (
	"context"
	"errors"
	"math"
	"time"

	"runlog/storage"
)

// AlertDiverged is the alert of a snapshot that is not the fold of its run.
const AlertDiverged = "PROJECTION_DIVERGED"

// Snapshot returns the fold of everything that a view shows, or of more: never of less (D9).
func (p *Projector) Snapshot(v *storage.View) (*Snapshot, error) {
	s, err := p.load(v.Run)
	if err != nil {
		s = Empty(v.Run) // the log has everything
	}
	return foldView(context.Background(), v, s, v.Run.Position+1)
}

// AsOf is a moment of a run: the last one at which both hold.
type AsOf struct {
	Seq  uint64 // the run had events up to this runSeq
	Time int64  // nothing later than this had been persisted, nanoseconds
}

// Always is the moment at which everything that a view shows is there.
var Always = AsOf{Seq: math.MaxUint64, Time: math.MaxInt64}

// SnapshotAsOf folds a run from its first event up to a moment, whatever the projection has.
func (p *Projector) SnapshotAsOf(ctx context.Context, v *storage.View, at AsOf) (*Snapshot, error) {
	return foldRecords(ctx, v, Empty(v.Run), func(r *storage.Record) bool {
		return r.RunSeq > at.Seq || r.PersistedAt > at.Time
	})
}

// ProjectRun folds a run from its first event and tells whether what is served of it is equal.
func (p *Projector) ProjectRun(ctx context.Context, v *storage.View) (s *Snapshot, matches bool, err error) {
	served, err := p.Snapshot(v)
	if err != nil {
		return nil, false, err
	}
	// What is served may have events that came after the view.
	now, err := p.opts.Store.View(v.Run.RunID)
	if err != nil {
		return nil, false, err
	}
	s, err = p.SnapshotAsOf(ctx, now, AsOf{Seq: served.LastEventSeq, Time: math.MaxInt64})
	if err := errors.Join(err, now.Close()); err != nil {
		return nil, false, err
	}
	if matches = s.Digest() == served.Digest(); !matches {
		p.metrics.diverged.Inc()
		p.opts.Logger.Error("a snapshot is not the fold of its run; rebuild the projection",
			"alert", AlertDiverged, "run", v.Run.RunID, "seq", served.LastEventSeq)
	}
	return s, matches, nil
}

// Stale says whether the projection has found a hole in a run and has not come past it yet
// (PRJ-12). What Snapshot returns is whole all the same: it takes what is missing from the log.
func (p *Projector) Stale(runID string) bool {
	p.live.RLock()
	defer p.live.RUnlock()
	_, stale := p.live.stale[runID]
	return stale
}

// foldBefore folds what the run of a commit had before it, from a snapshot on.
func foldBefore(store *storage.Store, s *Snapshot, c *storage.Commit) (_ *Snapshot, err error) {
	v, err := store.View(c.Run.RunID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return foldView(context.Background(), v, s, c.Position)
}

// foldView folds the events of a run at positions before end, from a snapshot on.
func foldView(ctx context.Context, v *storage.View, s *Snapshot, end storage.Position) (*Snapshot, error) {
	return foldRecords(ctx, v, s, func(r *storage.Record) bool { return r.Position >= end })
}

// foldRecords folds the events of a run that come after a snapshot, before the first one that is
// past the end.
func foldRecords(ctx context.Context, v *storage.View, s *Snapshot, past func(*storage.Record) bool) (*Snapshot, error) {
	if s.LastEventSeq >= v.Run.LastSeq {
		return s, nil
	}
	var batch []storage.Record
	for rec, err := range v.Events(s.LastEventSeq) {
		if err != nil {
			return nil, err
		}
		if past(rec) {
			break
		}
		if batch = append(batch, *rec); len(batch) == roundEvents {
			s, batch = ReduceAll(s, batch), batch[:0]
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
	}
	return ReduceAll(s, batch), nil
}

// Lag is the age of the oldest event that is not in a snapshot yet, 0 when all are (PRJ-11).
func (p *Projector) Lag() (time.Duration, error) {
	for c, err := range p.opts.Store.Follow(storage.Facts).Log(p.Position()) {
		if err != nil {
			return 0, err
		}
		return max(0, time.Duration(p.opts.Clock().UnixNano()-c.PersistedAt)), nil
	}
	return 0, nil
}
