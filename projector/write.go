package projector

import (
	"context"
	"fmt"
	"slices"
	"time"

	"runlog/projector/run"
	"runlog/storage"
)

const (
	// The rows of the projections are written after writeAfter, after roundEvents events, when the
	// snapshots that they come from fill an eighth of the memory for snapshots, and as soon as a
	// reader waits for them. So a row that changes with each event of its run is written once for
	// several events.
	writeAfter = 100 * time.Millisecond
	writeShare = 8

	// Snapshots live in memory. They are stored after storeAfter, after storeBehind events, when no
	// event comes for idleAfter, and when they leave memory. To store one costs as much as to fold
	// a good part of its run, and most runs end before. A write stores snapshots that could wait in
	// pieces of about storeBytes, so that the next round does not wait long.
	storeAfter  = 10 * time.Second
	storeBehind = 250_000
	storeBytes  = 128 << 10
	idleAfter   = 100 * time.Millisecond
	// flushEvery is the number of events after which stored rows are flushed, besides the flushes
	// that Pebble begins. It and storeBehind bound what is folded again after a crash.
	flushEvery = 500_000
)

// unwritten is what rounds have folded since the last write.
type unwritten struct {
	changes map[string]run.Change // by runId, since the last write
	events  int
	weight  int
	since   time.Time // of the first round
}

// keep adds a round to what is unwritten, and reports whether a write is due.
//
// Before a projection is brought on that is behind, and while rows of a restart are met again,
// every round writes: both begin at a position at which everything is written.
func (r *round) keep(now time.Time) (due bool) {
	p, u := r.p, &r.p.disk.db.unwritten
	if r.again {
		return true
	}
	if p.written() {
		u.since = now
	}
	u.events += r.events
	for id, f := range r.changed {
		u.weight += baseWeight + f.weight
		if c, before := u.changes[id]; before {
			c.Run, c.Now, c.Unsure = f.Run, f.Now, c.Unsure || f.rowsUnsure
			u.changes[id] = c
		} else if f.Now != f.Before || f.rowsUnsure { // not only its metadata changed
			u.changes[id] = run.Change{Run: f.Run, Before: f.listed, Now: f.Now, Unsure: f.rowsUnsure}
		}
	}
	asked := p.pinning.Load() != nil || p.waiters.Load() > 0 && r.position > p.disk.db.written
	return asked || r.silent || r.idle || u.events >= roundEvents || u.weight >= p.opts.CacheBytes/writeShare ||
		now.Sub(u.since) >= writeAfter || slices.ContainsFunc(p.projections, func(pr *projection) bool { return pr.behind })
}

// written reports whether all that is folded is written. Only run calls it.
func (p *Projector) written() bool { return p.disk.db.written == p.Position() }

// write folds the changed runs into the projections in step, and writes the rows of these
// projections with their watermarks.
func (r *round) write() error {
	d := r.p.disk.db
	d.written = r.position
	if r.again {
		return nil // They have these rows.
	}
	for _, pr := range r.p.projections {
		if pr.FoldRun == nil || pr.behind || pr == r.p.runs {
			continue
		}
		d.tx.owner = pr
		for _, c := range d.unwritten.changes {
			if err := pr.FoldRun(&d.tx, &c); err != nil {
				return fmt.Errorf("projection %s: %w", pr.Name, err)
			}
		}
	}
	clear(d.unwritten.changes)
	d.unwritten.events, d.unwritten.weight = 0, 0
	for _, pr := range r.p.projections {
		if !pr.behind {
			if err := pr.write(&d.tx); err != nil {
				return err
			}
		}
	}
	if d.tx.empty() {
		return nil // store moves the watermarks.
	}
	w := d.write()
	defer w.close()
	w.head(d.from, r.position)
	r.p.mark(w, r.position)
	return w.apply()
}

// mark writes the watermarks of the projections in step, without that of the run snapshots.
func (p *Projector) mark(w *write, at storage.Position) {
	for _, pr := range p.projections {
		if !pr.behind && pr != p.runs {
			w.mark(pr, at)
		}
	}
}

// store writes the snapshots that leave memory, some of those that are due, the position from which
// to fold on after a restart, and the watermarks.
func (r *round) store(now time.Time) error {
	p, runs := r.p, r.p.live.runs
	w := p.disk.db.write()
	defer w.close()
	leaving := runs.surplus()
	for _, e := range leaving {
		if e.queued != nil {
			runs.stored(e, w.snapshot(e))
		}
	}
	for e := runs.oldest(); e != nil && r.due(e, now) && (w.size() < storeBytes || r.late(e)); e = runs.oldest() {
		runs.stored(e, w.snapshot(e))
	}
	position := r.position
	if e := runs.oldest(); e != nil {
		position = e.since.position
	}
	newest := max(r.position, p.disk.db.opened.newest)
	w.head(position, newest)
	p.mark(w, newest)
	if !p.runs.behind {
		w.mark(p.runs, position)
	}
	if err := w.apply(); err != nil {
		return err
	}
	p.disk.db.from = position
	if p.folded >= p.flushed+flushEvery {
		p.flushed = p.folded
		if _, err := p.disk.db.db.AsyncFlush(); err != nil {
			return fmt.Errorf("%w: %w", errProjection, err)
		}
	}
	p.live.Lock()
	defer p.live.Unlock()
	runs.remove(leaving)
	return nil
}

// storeRest writes and stores everything that waits, as long as the database is sound.
func (p *Projector) storeRest() error {
	sound := p.disk.db.sound
	for !p.written() || p.live.runs.oldest() != nil {
		if sound.Err() != nil {
			return context.Cause(sound)
		}
		if err := p.newRound(true, true).finish(); err != nil {
			return err
		}
	}
	return nil
}

// late reports whether a snapshot has waited for so many events that it must be stored in this
// round: the number of events that are folded again after a crash is bounded.
func (r *round) late(e *cached) bool { return r.p.folded >= e.since.events+storeBehind }

// due reports whether a snapshot that is in memory only is to be stored now.
func (r *round) due(e *cached, now time.Time) bool {
	return r.idle || r.late(e) || now.Sub(e.since.at) >= storeAfter
}
