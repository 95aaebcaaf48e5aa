package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage"
)

const (
	// comparePage is how many runs are listed at a time to be compared.
	comparePage = 1000
	// compareAtOnce is for how long at most databases are kept from being made anew.
	compareAtOnce = rebuildReport
)

// compare compares what two projectors have of every run that this one lists. Nearly all are equal
// as they are stored, and that is told without making snapshots of them and without a look at the
// log.
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
		page, err := p.List(Filter{}, from, comparePage)
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

// count takes in that a run was compared.
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

// compareStored compares runs, in the order of their ids, as they are stored, and tells how many it
// has seen, and of which of them the stored forms do not say that they are equal.
func (p *Projector) compareStored(ctx context.Context, shadow *Projector, runs []string) (seen int, doubtful []string, err error) {
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

// look shows what a projector has of some runs, one after the other. While it is open, the database
// is not replaced.
type look struct {
	p      *Projector
	runs   []string
	memory []*Snapshot // nil: what the database has is the newest
	rows   *pebble.Iterator
	now    sight
}

// sight is what there is of one run: a snapshot in memory, or a stored one; neither, when the run
// has no events yet.
type sight struct {
	snapshot   *Snapshot
	row        []byte
	unreadable bool
	plain      []byte // memory for plainForm
}

// look opens a look at runs in the order of their ids. It has to be closed.
func (p *Projector) look(runs []string) (*look, error) {
	l := &look{p: p, runs: runs, memory: make([]*Snapshot, len(runs))}
	// A snapshot leaves memory when the database has it. So who asks memory first misses none.
	p.live.RLock()
	for i, runID := range runs {
		l.memory[i] = p.live.runs.get(runID)
	}
	p.live.RUnlock()
	p.disk.RLock()
	err := errors.New("is being made anew")
	if p.disk.db != nil {
		l.rows, err = p.disk.db.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tableSnapshot}, UpperBound: []byte{tableSnapshot + 1}})
	}
	if err != nil {
		p.disk.RUnlock()
		return nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	return l, nil
}

func (l *look) close() {
	_ = l.rows.Close() // at has said what could not be read
	l.p.disk.RUnlock()
}

// at returns what there is of the i-th run, until the next call.
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

// equal says whether two projectors have certainly the same of a run: the same canonical form, with
// the same beside it that later events are folded with. Whatever cannot be read is not equal.
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
		s.plain = s.snapshot.AppendCanonical(appendStoredHeader(s.plain[:0], s.snapshot))
		return s.plain
	}
	plain, err := unpackStored(s.plain[:0], s.row)
	if err != nil {
		return nil
	}
	s.plain = plain
	return s.plain
}

// sameIn compares the snapshots that two projectors have of a run. One may be further than the
// other.
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
		served, err = foldRecords(ctx, v, served, past)
		again, err2 = foldRecords(ctx, v, again, past)
		if err := errors.Join(err, err2, v.Close()); err != nil {
			return false, err
		}
	}
	if same = served.Digest() == again.Digest(); !same {
		p.metrics.diverged.Inc()
		p.opts.Logger.Error("a snapshot is not the fold of its run; the rebuild replaces it",
			"alert", AlertDiverged, "run", runID, "seq", served.LastEventSeq)
	}
	return same, nil
}
