package projector

import (
	"context"
	"fmt"
	"time"

	"runlog/storage"
)

const (
	// roundEvents closes a round of folding, at the end of a proposal.
	roundEvents = 4096
	// roundEvery is how often a round may begin: under load, more events share what a round costs.
	roundEvery = 5 * time.Millisecond

	// Snapshots live in memory, and are stored from there when they have waited for storeAfter or
	// while storeBehind events were folded; when nothing else is to do; and when they leave memory.
	// To store one costs as much as to fold a good part of its run, and most runs end before. What
	// could wait is stored in pieces of about storeBytes, so that the next round need not.
	storeAfter  = 10 * time.Second
	storeBehind = 250_000
	storeBytes  = 128 << 10
	// idleAfter is how long nothing has to come for snapshots to be stored that could wait.
	idleAfter = 100 * time.Millisecond
	// flushEvery is how many events are folded before what was stored is made durable, besides when
	// Pebble does that by itself. It and storeBehind bound what is folded again after a crash.
	flushEvery = 500_000
)

// AlertHole is the alert of a snapshot that lacks events before the next one (PRJ-12).
const AlertHole = "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED"

// round folds what was committed since the last one, up to about roundEvents, and publishes and
// stores the result. It ends where a proposal ends, so that the position is always true, and tells
// whether it came to the end of the log.
//
// A round up to where told is, unless that is 0, folds what was visible before: it is silent, and
// goes no further, since watchers must be told of what comes behind.
func (p *Projector) round(ctx context.Context, log *storage.Ahead, told storage.Position) (complete bool, err error) {
	applied := p.opts.Store.Applied()
	r := round{p: p, position: p.Position(), cursor: Cursor{Position: p.Position()}, changed: map[string]*folded{}, silent: told > 0}
	r.alerted = r.silent || p.Position() < p.disk.db.listed
	complete = true
	for c, err := range log.Log(p.Position()) {
		if err != nil {
			return false, err
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if r.events >= roundEvents && c.Position != r.position {
			complete = false
			break
		}
		if r.silent && c.Position > told {
			r.position, complete = told, false
			break
		}
		// What the list has already and what it has not is not folded in one round.
		if listed := p.disk.db.listed; p.Position() < listed && listed < c.Position {
			r.position, complete = listed, false
			break
		}
		if err := r.fold(c); err != nil {
			return false, err
		}
	}
	if complete {
		// Entries without events move the position too.
		r.position = max(r.position, applied.Position())
	}
	return complete, r.finish()
}

// round is the work in progress of one round.
type round struct {
	p        *Projector
	position storage.Position
	cursor   Cursor // behind the last commit
	events   int
	changed  map[string]*folded
	stamps   []stamped
	silent   bool
	// alerted says that the operator was told of these events before: the list has been where they
	// are.
	alerted bool
}

// stamped counts the events of a commit, which have one persistedAt.
type stamped struct {
	at     int64 // nanoseconds
	events int
}

// folded is a run that a round changed.
type folded struct {
	run    *storage.Run
	before *Snapshot // as the round found it
	now    *Snapshot
	listed RunStatus // as it is in the list; 0: it is not there
	anew   bool      // some of its rows may be missing in the list
	weight int       // what the events may add to the snapshot

	// For who watches many runs.
	stamp  int64  // of the last commit with events, nanoseconds
	cursor Cursor // behind the last commit that is news
	seq    uint64 // of its last event
	unsure bool   // before had some of the events: it does not tell the status that was told last
}

// eventWeight is what an event adds beside what it takes from its payload.
const eventWeight = 128

func (r *round) fold(c *storage.Commit) error {
	r.position, r.cursor = c.Position, r.cursor.next(c.Position)
	r.events += max(1, len(c.Records)) // a run without events counts too
	f, err := r.begin(c)
	if err != nil {
		return err
	}
	if len(c.Records) == 0 {
		if f.now.LastEventSeq == 0 {
			f.cursor = r.cursor
		}
		return nil
	}
	f.stamp = c.PersistedAt
	// What the database lacks of a run comes after its position, unless the store has got events
	// elsewhere; and what is imported may have gaps.
	if next := c.Records[0].RunSeq; f.now.LastEventSeq+1 < next {
		r.hole(f, f.now.LastEventSeq, next)
		f.anew = true // it may be what made the run
		missing, err := foldBefore(r.p.opts.Store, f.now, c)
		if err != nil {
			return err
		}
		// else there is nothing in the hole, and the run is as heavy as it was
		if missing != f.now {
			f.now = missing
			f.weight += len(f.now.CanonicalJSON())
		}
	}
	for i := range c.Records[1:] {
		if last, next := c.Records[i].RunSeq, c.Records[i+1].RunSeq; last+1 < next && last >= f.now.LastEventSeq {
			r.hole(f, last, next)
		}
	}
	f.cursor, f.seq = r.cursor, c.Records[len(c.Records)-1].RunSeq
	f.unsure = f.unsure || c.Records[0].RunSeq <= f.now.LastEventSeq
	alert := func(i Inconsistency) { r.p.alert(c.Run.RunID, i) }
	if r.alerted {
		alert = nil
	}
	before := len(f.now.Artifacts)
	f.now = ReduceReporting(f.now, c.Records, alert)
	if len(f.now.Artifacts) > before {
		// The run has ended, and gathers what its steps have.
		f.weight += artifactsWeight(f.now.Artifacts)
	}
	for i := range c.Records {
		f.weight += eventWeight + len(c.Records[i].StepID) + len(c.Records[i].Payload)
	}
	r.stamps = append(r.stamps, stamped{c.PersistedAt, len(c.Records)})
	r.p.metrics.events.Add(float64(len(c.Records)))
	return nil
}

func artifactsWeight(list []Artifact) (weight int) {
	for i := range list {
		a := &list[i]
		weight += eventWeight + len(a.URI) + len(a.Kind) + len(a.SHA256) + len(a.ExpiresAt)
	}
	return weight
}

// begin returns the run of a commit as it was before the commit.
func (r *round) begin(c *storage.Commit) (*folded, error) {
	if f := r.changed[c.Run.RunID]; f != nil {
		return f, nil
	}
	s := r.p.live.runs.get(c.Run.RunID) // nobody else changes it
	weight, anew := 0, c.Run.CreatedPosition > r.p.Position()
	switch {
	case s != nil:
	case anew && c.Run.CreatedPosition > r.p.disk.db.listed:
		s = Empty(c.Run) // what the list lacked when the database was opened has no snapshot there
	default:
		var err error
		if s, weight, err = r.p.loadStored(c.Run); err != nil {
			return nil, err
		}
	}
	f := &folded{run: c.Run, listed: s.Status, weight: weight, anew: anew}
	if anew {
		f.listed = 0
	}
	f.before, f.now = s, s
	r.changed[c.Run.RunID] = f
	return f, nil
}

// grew says whether the run has events that its snapshot did not have before.
func (f *folded) grew() bool { return f.now.LastEventSeq > f.before.LastEventSeq }

// finish makes the new snapshots and the list visible, tells the watchers, and stores what is due.
func (r *round) finish() error {
	p := r.p
	now := p.opts.Clock()
	if err := r.list(); err != nil {
		return err
	}
	since := mark{position: p.Position(), events: p.folded, at: now}
	p.folded += uint64(r.events)
	p.live.Lock()
	for id, f := range r.changed {
		p.live.runs.put(f, since)
		delete(p.live.stale, id)
	}
	p.live.Unlock()
	p.position.Store(uint64(r.position))
	p.advanced.Lock()
	close(p.advanced.ch)
	p.advanced.ch = make(chan struct{})
	p.advanced.Unlock()
	if !r.silent {
		p.watch.publish(r.position, r.changed)
		r.observeLag(now)
	}
	return r.store(now)
}

// observeLag measures every event that has just become visible (PRJ-11).
func (r *round) observeLag(now time.Time) {
	nanos := now.UnixNano()
	for _, s := range r.stamps {
		lag := max(0, float64(nanos-s.at)/float64(time.Second))
		for range s.events {
			r.p.metrics.lag.Observe(lag)
		}
	}
}

// storeRest stores everything that waits, as long as the database is sound.
func (p *Projector) storeRest() error {
	sound := p.disk.db.sound
	for p.live.runs.oldest() != nil {
		if sound.Err() != nil {
			return context.Cause(sound)
		}
		rest := round{p: p, position: p.Position()}
		if err := rest.store(p.opts.Clock()); err != nil {
			return err
		}
	}
	return nil
}

// list writes the rows of the list that changed, and up to where the list is then.
func (r *round) list() error {
	d := r.p.disk.db
	if r.p.Position() < d.listed {
		return nil // it has them since before a restart, and nothing behind them was folded
	}
	w := d.write()
	defer w.close()
	for _, f := range r.changed {
		if f.anew || f.now.Status != f.listed {
			w.list(f)
		}
	}
	if len(d.rows.all) > 0 {
		w.listed(r.position)
	}
	return w.apply()
}

// store writes the snapshots that leave memory, some of those that have waited long enough, and
// from where on to fold after a restart.
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
	w.position(position)
	if err := w.apply(); err != nil {
		return err
	}
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

// late says whether a snapshot has waited for so many events that it must not wait for a piece of
// its own: what would be folded again after a crash is bounded.
func (r *round) late(e *cached) bool { return r.p.folded >= e.since.events+storeBehind }

// due says whether a snapshot that is in memory has to be stored now.
func (r *round) due(e *cached, now time.Time) bool {
	return r.events == 0 || r.late(e) || now.Sub(e.since.at) >= storeAfter
}

// hole marks a run STALE, until its watermark has passed the hole, and tells its watchers and the
// operator (PRJ-12). What is missing is then read from the log; in an imported run nothing may be
// there.
func (r *round) hole(f *folded, last, next uint64) {
	if r.silent {
		return
	}
	p, id := r.p, f.run.RunID
	p.live.Lock()
	p.live.stale[id] = struct{}{}
	p.live.Unlock()
	p.watch.nudge(id, f.before, f.stamp)
	p.metrics.holes.Inc()
	if now := p.opts.Clock(); now.Sub(p.holeSaid) >= time.Second {
		p.holeSaid = now
		p.opts.Logger.Warn("the next event of a run does not follow its snapshot; the run is STALE until it was read again from the log",
			"alert", AlertHole, "run", id, "snapshot", last, "next", next)
	}
}

// alert tells the operator about an event that its run's state did not allow (PRJ-8).
func (p *Projector) alert(runID string, i Inconsistency) {
	p.metrics.inconsistencies.Inc()
	p.opts.Logger.Warn("event not allowed by the run's state", "alert", i.Kind, "run", runID,
		"seq", i.RunSeq, "event", i.EventID, "state", i.State, "attempted", i.Attempted)
}
