package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"runlog/projector/run"
	"runlog/storage"
)

const (
	// comparePage is how many runs are listed at a time to be compared.
	comparePage = 1000
	// compareAtOnce is for how long at most a comparison delays the replacement of a database.
	compareAtOnce = rebuildReport
)

// compare compares the snapshots of two projectors, for each run that this one lists. Nearly all
// are equal as they are stored: that needs no parsing and no read of the log.
func (p *Projector) compare(ctx context.Context, shadow *Projector, g *Progress, report func(Progress)) error {
	g.Phase = PhaseCompare
	last := time.Now()
	tell := func() {
		if now := time.Now(); now.Sub(last) >= rebuildReport {
			last = now
			g.Position, g.Target = shadow.Position(), p.Position()
			report(*g)
		}
	}
	for from := []byte(nil); ; {
		page, err := p.List(run.Filter{}, from, comparePage)
		if err != nil {
			return err
		}
		runs := make([]string, len(page.Runs))
		for i := range page.Runs {
			runs[i] = page.Runs[i].RunID
		}
		slices.Sort(runs) // as the databases have them
		for len(runs) > 0 {
			seen, doubtful, err := p.compareStored(ctx, shadow, runs)
			if err != nil {
				return err
			}
			g.Compared += seen - len(doubtful)
			tell()
			for _, runID := range doubtful {
				same, err := p.sameIn(ctx, shadow, runID)
				if err != nil {
					return err
				}
				g.count(runID, same)
				tell()
			}
			runs = runs[seen:]
		}
		if from = page.Next; from == nil {
			return nil
		}
	}
}

// count counts a compared run.
func (g *Progress) count(runID string, same bool) {
	g.Compared++
	if same {
		return
	}
	g.Differing++
	if len(g.Different) < maxDifferent {
		g.Different = append(g.Different, runID)
	}
}

// compareStored compares the stored forms of runs, in the order of their ids. It returns how many
// it has seen, and those of them whose stored forms are not equal.
func (p *Projector) compareStored(ctx context.Context, shadow *Projector, runs []string,
) (seen int, doubtful []string, err error) {
	served, err := p.look(runs)
	if err != nil {
		return 0, nil, err
	}
	defer served.close()
	again, err := shadow.look(runs)
	if err != nil {
		return 0, nil, err
	}
	defer again.close()
	for began := time.Now(); seen < len(runs) && time.Since(began) < compareAtOnce; seen++ {
		if ctx.Err() != nil {
			return seen, nil, context.Cause(ctx)
		}
		if !served.at(seen).equal(again.at(seen)) {
			doubtful = append(doubtful, runs[seen])
		}
	}
	return seen, doubtful, nil
}

// look iterates over the snapshots that a projector has of some runs. While it is open, the
// database is not replaced.
type look struct {
	p      *Projector
	runs   []string
	memory []*run.Snapshot // nil: the stored one is the newest
	rows   *pebble.Iterator
	now    sight
}

// sight is the snapshot of one run, in memory or stored; neither if the run has no events yet.
type sight struct {
	snapshot   *run.Snapshot
	row        []byte
	unreadable bool
	plain      []byte // memory for plainForm
}

// look opens a look at runs in the order of their ids. The caller closes it.
func (p *Projector) look(runs []string) (*look, error) {
	l := &look{p: p, runs: runs, memory: make([]*run.Snapshot, len(runs))}
	// A snapshot leaves memory after it was stored. So a reader of memory first misses none.
	p.live.RLock()
	for i, runID := range runs {
		l.memory[i] = p.live.runs.get(runID)
	}
	p.live.RUnlock()
	p.disk.RLock()
	if p.disk.db == nil {
		p.disk.RUnlock()
		return nil, ErrRemaking
	}
	var err error
	bounds := &pebble.IterOptions{LowerBound: []byte{tableSnapshot}, UpperBound: []byte{tableSnapshot + 1}}
	l.rows, err = p.disk.db.db.NewIter(bounds)
	if err != nil {
		p.disk.RUnlock()
		return nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	return l, nil
}

func (l *look) close() {
	_ = l.rows.Close() // at has reported read errors
	l.p.disk.RUnlock()
}

// at returns the snapshot of the i-th run, until the next call.
func (l *look) at(i int) *sight {
	s := &l.now
	s.snapshot, s.row, s.unreadable = l.memory[i], nil, false
	if s.snapshot == nil {
		key := snapshotKey(l.runs[i])
		if l.rows.SeekGE(key) && bytes.Equal(l.rows.Key(), key) {
			s.row = l.rows.Value()
		}
		s.unreadable = l.rows.Error() != nil
	}
	return s
}

// equal reports whether two snapshots are certainly equal: in their canonical form and in the other
// fields that later events are folded with. An unreadable snapshot is not equal.
func (s *sight) equal(other *sight) bool {
	switch {
	case s.unreadable || other.unreadable:
		return false
	case s.snapshot == nil && other.snapshot == nil && bytes.Equal(s.row, other.row):
		return true
	}
	a, b := s.plainForm(), other.plainForm()
	return a != nil && bytes.Equal(a, b)
}

// plainForm returns the stored form without its compression, nil when there is none.
func (s *sight) plainForm() []byte {
	if s.snapshot != nil {
		s.plain = run.AppendPlain(s.plain[:0], s.snapshot)
		return s.plain
	}
	plain, err := run.UnpackStored(s.plain[:0], s.row)
	if err != nil {
		return nil
	}
	s.plain = plain
	return s.plain
}

// sameIn compares the snapshots that two projectors have of a run. One may have more events than
// the other.
func (p *Projector) sameIn(ctx context.Context, shadow *Projector, runID string) (same bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	v, err := p.opts.Store.View(runID)
	if err != nil {
		return false, err
	}
	served, err := p.Snapshot(v)
	again, err2 := shadow.Snapshot(v)
	if err := errors.Join(err, err2, v.Close()); err != nil {
		return false, err
	}
	if served.LastEventSeq != again.LastEventSeq {
		if v, err = p.opts.Store.View(runID); err != nil {
			return false, err
		}
		upTo := max(served.LastEventSeq, again.LastEventSeq)
		past := func(r *storage.Record) bool { return r.RunSeq > upTo }
		served, err = run.FoldUntil(ctx, v, served, past)
		again, err2 = run.FoldUntil(ctx, v, again, past)
		if err := errors.Join(err, err2, v.Close()); err != nil {
			return false, err
		}
	}
	if same = served.Digest() == again.Digest(); !same {
		p.metrics.diverged.Inc()
		p.opts.Logger.Error("snapshot differs from the fold of its run; replacing it",
			"alert", AlertDiverged, "run", runID, "seq", served.LastEventSeq)
	}
	return same, nil
}
