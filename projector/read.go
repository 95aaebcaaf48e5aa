package projector

import (
	"context"
	"errors"
	"math"
	"time"

	"runlog/projector/run"
	"runlog/storage"
)

// AlertDiverged is the alert of a snapshot that is not the fold of its run.
const AlertDiverged = "PROJECTION_DIVERGED"

// Snapshot returns the fold of at least the events that a view shows (D9).
func (p *Projector) Snapshot(v *storage.View) (*run.Snapshot, error) {
	s, err := p.load(v.Run)
	if err != nil {
		s = run.Empty(v.Run) // the log has everything
	}
	return run.FoldView(context.Background(), v, s, v.Run.Position+1)
}

// AsOf is a moment of a run: the last one for which all fields hold.
type AsOf struct {
	Seq      uint64           // the run had events up to this runSeq
	Time     int64            // nothing later than this had been persisted, nanoseconds
	Position storage.Position // nothing behind this had been committed
}

// Always is the moment that includes everything a view shows.
var Always = AsOf{Seq: math.MaxUint64, Time: math.MaxInt64, Position: math.MaxUint64}

// AsOfSeq is the moment after an event.
func AsOfSeq(seq uint64) AsOf {
	at := Always
	at.Seq = seq
	return at
}

// Past reports whether a record came after the moment.
func (at AsOf) Past(r *storage.Record) bool {
	return r.RunSeq > at.Seq || r.PersistedAt > at.Time || r.Position > at.Position
}

// SnapshotAsOf folds a run from its first event up to a moment. It does not use the projection.
func (p *Projector) SnapshotAsOf(ctx context.Context, v *storage.View, at AsOf) (*run.Snapshot, error) {
	return run.FoldUntil(ctx, v, run.Empty(v.Run), at.Past)
}

// ProjectRun folds a run from its first event, and reports whether the served snapshot is equal.
func (p *Projector) ProjectRun(ctx context.Context, v *storage.View) (s *run.Snapshot, matches bool, err error) {
	served, err := p.Snapshot(v)
	if err != nil {
		return nil, false, err
	}
	// The served snapshot may have events that came after the view.
	now, err := p.opts.Store.View(v.Run.RunID)
	if err != nil {
		return nil, false, err
	}
	s, err = p.SnapshotAsOf(ctx, now, AsOfSeq(served.LastEventSeq))
	if err := errors.Join(err, now.Close()); err != nil {
		return nil, false, err
	}
	if matches = s.Digest() == served.Digest(); !matches {
		p.metrics.diverged.Inc()
		p.opts.Logger.Error("snapshot differs from the fold of its run; rebuild it",
			"alert", AlertDiverged, "run", v.Run.RunID, "seq", served.LastEventSeq)
	}
	return s, matches, nil
}

// Stale reports whether the tail has met a hole in a run and has not passed it yet (PRJ-12).
// Snapshot reads the missing events from the log.
func (p *Projector) Stale(runID string) bool {
	p.live.RLock()
	defer p.live.RUnlock()
	_, stale := p.live.stale[runID]
	return stale
}

// Live returns the snapshot of a run from memory if it has everything up to a position; nil if
// memory does not tell.
func (p *Projector) Live(runID string, at storage.Position) *run.Snapshot {
	p.live.RLock()
	defer p.live.RUnlock()
	if p.Position() < at {
		return nil
	}
	return p.live.runs.get(runID)
}

// Lag returns the age of the oldest event that is not in a snapshot yet, 0 if there is none
// (PRJ-11).
func (p *Projector) Lag() (time.Duration, error) {
	for c, err := range p.opts.Store.Follow(storage.Facts).Log(p.Position()) {
		if err != nil {
			return 0, err
		}
		return max(0, time.Duration(p.opts.Clock().UnixNano()-c.PersistedAt)), nil
	}
	return 0, nil
}
