package projector

import (
	"fmt"
	"time"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/storage"
	"runlog/storage/tail"
)

const (
	// roundEvents ends a round of folding, at the end of a proposal.
	roundEvents = 4096
	// roundEvery is the least time between two rounds: under load, more events share the cost of a
	// round.
	roundEvery = 5 * time.Millisecond
)

// AlertHole is the alert of a snapshot that lacks events before the next one (PRJ-12).
const AlertHole = "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED"

// round folds what was committed since the last round, up to about roundEvents: each commit into
// the snapshot of its run (foldSnapshot), and into the projections that follow commits
// (foldProjections). Then it publishes the result (finish). It ends at the end of a proposal, so
// that the position is always exact.
//
// complete: it has reached the end of the log. idle: no event has come for a while. After an error
// the projector writes nothing any more.
//
// If shown is not 0, watchers have seen everything up to there, from a database that was replaced.
// The round is silent about it, and ends at shown, because it must not be silent about what
// follows.
func (p *Projector) round(log tail.Log, shown storage.Position, idle bool) (complete bool, err error) {
	defer func() { p.disk.db.tx.fail(err) }()
	applied, opened := p.opts.Store.Applied(), p.disk.db.opened.newest
	limit := p.opts.ceiling.cap(unbounded) // Once: a rebuild may raise the ceiling meanwhile.
	r := p.newRound(shown > 0, idle)
	r.alerted = r.silent || r.again
	complete = true
	for c, err := range log.Log(p.Position()) {
		if err != nil {
			return false, err
		}
		if r.events >= roundEvents && c.Position != r.position {
			complete = false
			break
		}
		if r.silent && c.Position > shown {
			r.position, complete = shown, false
			break
		}
		// After a restart, a round has only events whose rows the projections have (again), or only
		// such as they do not have.
		if r.again && opened < c.Position {
			r.position, complete = opened, false
			break
		}
		if c.Position > limit {
			break
		}
		if err := r.foldSnapshot(c); err != nil {
			return false, err
		}
		if err := r.foldProjections(c); err != nil {
			return false, err
		}
	}
	if complete {
		// Entries without events move the position too.
		r.position = max(r.position, min(limit, applied.Position()))
	}
	return complete, r.finish()
}

func (p *Projector) newRound(silent, idle bool) *round {
	return &round{
		p: p, position: p.Position(), cursor: watch.Cursor{Position: p.Position()}, changed: map[string]*folded{},
		silent: silent, idle: idle, again: p.Position() < p.disk.db.opened.newest,
	}
}

// round is the work in progress of one round. Only the goroutine of run uses it, or Close.
type round struct {
	p        *Projector
	position storage.Position   // up to which it has folded
	cursor   watch.Cursor       // behind the last commit
	events   int                // folded
	changed  map[string]*folded // runs, by runId
	stamps   []stamped          // of the events, for the lag
	// silent: watchers have seen these events, so nothing is published and no alert raised.
	silent bool
	// idle: no event has come for a while, so everything is written and stored.
	idle bool
	// again: the projections but the run snapshots have these events since before a restart.
	again bool
	// alerted: the alerts of these events were raised before.
	alerted bool
}

// stamped counts the events of a commit, which have one persistedAt.
type stamped struct {
	at     int64 // nanoseconds
	events int
}

// folded is a run that a round changed.
type folded struct {
	watch.News
	listed run.Status // that the projections have; 0: they do not have the run
	// rowsUnsure: the projections may lack rows of the run, or have them under another status.
	rowsUnsure bool
	weight     int // by which the events may enlarge the snapshot
}

// eventWeight is the weight of an event without its payload.
const eventWeight = 128

// foldSnapshot folds a commit into the snapshot of its run:
//
//	begin     the snapshot as it was before the commit, from memory, the database or the log
//	hole      if events before the commit are missing, they are folded from the log first
//	reduce    the events of the commit, with an alert for each that the run's state did not allow
func (r *round) foldSnapshot(c *storage.Commit) error {
	r.position, r.cursor = c.Position, r.cursor.Next(c.Position)
	r.events += max(1, len(c.Records)) // a run without events counts too
	f, err := r.begin(c)
	if err != nil {
		return err
	}
	if len(c.Records) == 0 {
		f.Drained = f.Now.Drain().Running > 0
		if f.Drained || f.Now.LastEventSeq == 0 {
			f.Cursor, f.Seq, f.Stamp = r.cursor, f.Now.LastEventSeq, c.PersistedAt
		}
		return nil
	}
	f.Stamp = c.PersistedAt
	// A stored snapshot lacks only events that the log brings again, unless its row was lost, or
	// the store got events from outside of the log. Imported runs may have gaps.
	if next := c.Records[0].RunSeq; f.Now.LastEventSeq+1 < next {
		r.hole(f, f.Now.LastEventSeq, next)
		f.rowsUnsure = true // the run may have been made in the hole
		missing, err := run.FoldBefore(r.p.opts.Store, f.Now, c)
		if err != nil {
			return err
		}
		// If the hole is empty, the run is as heavy as it was.
		if missing != f.Now {
			f.Now = missing
			f.weight += len(f.Now.CanonicalJSON())
		}
	}
	for i := range c.Records[1:] {
		if last, next := c.Records[i].RunSeq, c.Records[i+1].RunSeq; last+1 < next && last >= f.Now.LastEventSeq {
			r.hole(f, last, next)
		}
	}
	f.Cursor, f.Seq = r.cursor, c.Records[len(c.Records)-1].RunSeq
	f.Unsure = f.Unsure || c.Records[0].RunSeq <= f.Now.LastEventSeq
	alert := func(i run.Inconsistency) { r.p.alert(c.Run.RunID, i) }
	if r.alerted {
		alert = nil
	}
	before := len(f.Now.Artifacts)
	f.Now = run.ReduceReporting(f.Now, c.Records, alert)
	if len(f.Now.Artifacts) > before {
		// The run has ended and gathers the artifacts of its steps.
		f.weight += artifactsWeight(f.Now.Artifacts)
	}
	for i := range c.Records {
		f.weight += eventWeight + len(c.Records[i].StepID) + len(c.Records[i].Payload)
	}
	r.stamps = append(r.stamps, stamped{c.PersistedAt, len(c.Records)})
	r.p.metrics.events.Add(float64(len(c.Records)))
	return nil
}

func artifactsWeight(list []run.Artifact) (weight int) {
	for i := range list {
		a := &list[i]
		weight += eventWeight + len(a.URI) + len(a.Kind) + len(a.SHA256) + len(a.ExpiresAt)
	}
	return weight
}

// foldProjections folds a commit into the projections in step that follow commits. Those that
// follow runs get the changes of several rounds at a time (write).
func (r *round) foldProjections(c *storage.Commit) error {
	if r.again {
		return nil
	}
	tx := &r.p.disk.db.tx
	for _, pr := range r.p.projections {
		if pr.Fold == nil || pr.behind {
			continue
		}
		tx.owner = pr
		if err := pr.Fold(tx, c); err != nil {
			return fmt.Errorf("projection %s: %w", pr.Name, err)
		}
	}
	return nil
}

// begin returns the run of a commit as it was before the commit.
func (r *round) begin(c *storage.Commit) (*folded, error) {
	if f := r.changed[c.Run.RunID]; f != nil {
		return f, nil
	}
	p := r.p
	s := p.live.runs.get(c.Run.RunID)                       // only this goroutine changes it
	weight, made := 0, c.Run.CreatedPosition > p.Position() // by this round
	switch {
	case s != nil:
	case made && c.Run.CreatedPosition > p.disk.db.opened.newest:
		s = run.Empty(c.Run) // no row is newer than that
	default:
		var err error
		if s, weight, err = p.loadStored(c.Run); err != nil {
			return nil, err
		}
		if p.runs.behind && s.LastEventSeq == 0 {
			// The snapshots are being rebuilt, and this one was not stored yet: that is no hole.
			if s, err = run.FoldBefore(p.opts.Store, s, c); err != nil {
				return nil, err
			}
			weight = len(s.CanonicalJSON())
		}
	}
	f := &folded{listed: s.Status, weight: weight, rowsUnsure: made}
	if made {
		f.listed = 0
	}
	f.Run, f.Before, f.Now = c.Run, s, s
	r.changed[c.Run.RunID] = f
	return f, nil
}

// finish ends a round, in the order of the hand-over, see Projector:
//
//  1. keep, write: if a write is due, the rows of the projections and their watermarks.
//  2. live, position: the snapshots, then the position, so that a reader of the position finds the
//     snapshots up to it. The positions of the projections follow what is written (serveAt).
//  3. advance, Publish: readers that wait look again, and watchers get what has changed.
//  4. store: with a write, the snapshots that are due. They bound what is folded again after a
//     crash, and no reader waits for them.
func (r *round) finish() error {
	p := r.p
	now := p.opts.Clock()
	since := moment{position: p.Position(), events: p.folded, at: now}
	p.folded += uint64(r.events)
	written := p.disk.db.written
	write := r.keep(now)
	if write {
		if err := r.write(); err != nil {
			return err
		}
	}
	p.live.Lock()
	for id, f := range r.changed {
		p.live.runs.put(f, since)
		delete(p.live.stale, id)
	}
	p.live.Unlock()
	moved := r.position > p.Position() || p.disk.db.written > written
	p.position.Store(uint64(r.position))
	p.serveAt(p.disk.db)
	if moved {
		p.advance()
	}
	if !r.silent {
		p.watch.Publish(r.position, r.news)
		r.observeLag(now)
	}
	if write {
		return r.store(now)
	}
	return nil
}

// news yields the runs that the round has changed.
func (r *round) news(yield func(*watch.News) bool) {
	for _, f := range r.changed {
		if !yield(&f.News) {
			return
		}
	}
}

// observeLag measures the lag of each event that has just become visible (PRJ-11).
func (r *round) observeLag(now time.Time) {
	nanos := now.UnixNano()
	for _, s := range r.stamps {
		lag := max(0, float64(nanos-s.at)/float64(time.Second))
		for range s.events {
			r.p.metrics.lag.Observe(lag)
		}
	}
}

// hole marks a run STALE until its watermark has passed the hole. It wakes the run's watchers and
// raises an alert (PRJ-12). The missing events are then read from the log; an imported run may not
// have them.
func (r *round) hole(f *folded, last, next uint64) {
	if r.silent {
		return
	}
	p, id := r.p, f.Run.RunID
	p.live.Lock()
	p.live.stale[id] = struct{}{}
	p.live.Unlock()
	p.watch.Nudge(id, f.Before, f.Stamp)
	p.metrics.holes.Inc()
	if now := p.opts.Clock(); now.Sub(p.holeSaid) >= time.Second {
		p.holeSaid = now
		p.opts.Logger.Warn("hole before the next event; reading the run from the log",
			"alert", AlertHole, "run", id, "snapshot", last, "next", next)
	}
}

// alert raises the alert of an event that its run's state did not allow (PRJ-8).
func (p *Projector) alert(runID string, i run.Inconsistency) {
	p.metrics.inconsistencies.Inc()
	p.opts.Logger.Warn("event not allowed by the run's state", "alert", i.Kind, "run", runID,
		"seq", i.RunSeq, "event", i.EventID, "state", i.State, "attempted", i.Attempted)
}
