package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runlog/projector/run"
	"runlog/storage"
)

// A step of a catch-up ends after stepEvents or stepTime, at the end of a proposal. The next round
// waits for it.
const (
	stepEvents = 4096
	stepTime   = 5 * time.Millisecond
)

// lowest returns the lowest watermark of a projection that is behind, and whether a catch-up can
// continue from there.
func (p *Projector) lowest() (from storage.Position, canGoOn bool) {
	behind := false
	for _, pr := range p.projections {
		if pr.behind && (!behind || pr.position < from) {
			behind, from = true, pr.position
		}
	}
	// Rows may be newer than the position until the tail has passed opened.newest.
	if !behind || p.Position() < p.disk.db.opened.newest {
		return from, false
	}
	applied := p.opts.Store.Applied()
	return from, from < min(p.Position(), applied.Position())
}

// catchUp folds a piece of the log into the projections that are behind. A projection that has
// reached the position of the tail is in step from then on.
//
// Rounds and steps run on one goroutine, in turn. So a step reads snapshots that do not change
// meanwhile, and the state after a crash is the state after some round or step.
//
// Commits are folded exactly. Of a run, a projection gets the newest snapshot, at the run's last
// commit: what the earlier commits did to the run is in it. Rounds do not write rows of a
// projection that is behind. If a round changes a run, the catch-up comes to that commit later.
func (p *Projector) catchUp(ctx context.Context, log *storage.Ahead) (err error) {
	from, canGoOn := p.lowest()
	if !canGoOn {
		return nil
	}
	s := p.newStep(from)
	defer func() {
		if err != nil {
			p.disk.db.tx.begin() // Close may write once more.
		}
	}()
	began := time.Now()
	at, events, complete := from, 0, true
	for c, err := range log.Log(from) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.Position > s.to {
			break
		}
		if c.Position != at && at > from && (events >= p.opts.stepEvents || time.Since(began) >= stepTime) {
			complete = false
			break
		}
		at = c.Position
		events += max(1, len(c.Records))
		if err := s.fold(c); err != nil {
			return err
		}
	}
	if complete {
		at = s.to
	}
	return s.finish(at)
}

// step is a step of a catch-up: the projections at one position move on to another.
type step struct {
	p     *Projector
	to    storage.Position // at most
	moved []*projection
	runs  bool // one of them follows runs
}

func (p *Projector) newStep(from storage.Position) *step {
	applied := p.opts.Store.Applied()
	s := &step{p: p, to: min(p.Position(), applied.Position())}
	for _, pr := range p.projections {
		switch {
		case !pr.behind:
		case pr.position == from:
			s.moved = append(s.moved, pr)
			s.runs = s.runs || pr.FoldRun != nil
		default:
			s.to = min(s.to, pr.position) // where that one joins
		}
	}
	return s
}

func (s *step) fold(c *storage.Commit) error {
	var change *run.Change
	if s.runs {
		var err error
		if change, err = s.p.latest(c); err != nil {
			return err
		}
	}
	tx := &s.p.disk.db.tx
	for _, pr := range s.moved {
		tx.owner = pr
		var err error
		if pr.Fold != nil {
			err = pr.Fold(tx, c)
		}
		if err == nil && pr.FoldRun != nil && change != nil {
			err = pr.FoldRun(tx, change)
		}
		if err != nil {
			return fmt.Errorf("projection %s: %w", pr.Name, err)
		}
	}
	return nil
}

// finish writes the rows and the watermarks.
func (s *step) finish(at storage.Position) error {
	p := s.p
	w := p.disk.db.write()
	defer w.close()
	for _, pr := range s.moved {
		if err := pr.write(&p.disk.db.tx); err != nil {
			return err
		}
		w.mark(pr, at)
	}
	if err := w.apply(); err != nil {
		return err
	}
	for _, pr := range s.moved {
		pr.position, pr.behind = at, at < p.Position()
		if !pr.behind {
			p.opts.Logger.Info("projection rebuilt", "projection", pr.Name, "position", uint64(at))
		}
	}
	p.serveAt(p.disk.db)
	p.advance()
	return nil
}

// latest returns the change of a run at a commit, if that is the last commit of the run that the
// tail has folded; nil otherwise.
func (p *Projector) latest(c *storage.Commit) (*run.Change, error) {
	id, seq := c.Run.RunID, uint64(0)
	if n := len(c.Records); n > 0 {
		seq = c.Records[n-1].RunSeq
	} else if c.Position != c.Run.CreatedPosition {
		return nil, nil // metadata
	}
	if seq < p.more[id] {
		return nil, nil
	}
	now, err := p.newest(c.Run)
	if err != nil {
		return nil, err
	}
	if now.LastEventSeq > seq {
		p.more[id] = now.LastEventSeq
		return nil, nil
	}
	delete(p.more, id)
	return &run.Change{Run: c.Run, Now: now, Behind: true}, nil
}

// newest returns the snapshot of a run at the position of the tail. Only the goroutine of run calls
// it.
func (p *Projector) newest(r *storage.Run) (s *run.Snapshot, err error) {
	if s = p.live.runs.get(r.RunID); s != nil {
		return s, nil
	}
	if s, _, err = p.loadStored(r); err != nil || !p.runs.behind || s.LastEventSeq > 0 {
		return s, err
	}
	v, err := p.opts.Store.View(r.RunID)
	if err != nil {
		return nil, err
	}
	s, err = run.FoldView(context.Background(), v, s, p.Position()+1)
	return s, errors.Join(err, v.Close())
}
