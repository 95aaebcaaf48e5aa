package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage"
)

// compareRows is the number of rows between two looks at the context.
const compareRows = 4096

// pin is a request to run for a view of the served database between two rounds.
type pin struct{ done chan pinned } // has room for one

type pinned struct {
	snapshot *pebble.Snapshot
	position storage.Position // that the tables of the projections have
	inStep   []*projection
}

// answerPin answers a pin, once no row is newer than the position. Only run calls it.
func (p *Projector) answerPin() {
	if p.pinning.Load() == nil || p.Position() < p.disk.db.opened.newest || !p.written() {
		return
	}
	request := p.pinning.Swap(nil)
	if request == nil {
		return // withdrawn
	}
	answer := pinned{snapshot: p.disk.db.db.NewSnapshot(), position: p.Position()}
	for _, pr := range p.projections {
		if !pr.behind && pr != p.runs {
			answer.inStep = append(answer.inStep, pr)
		}
	}
	request.done <- answer
}

// compareTables compares the tables of the projections other than the run snapshots at one position
// of the log. A shadow that is not ahead of it is folded up to there.
func (p *Projector) compareTables(ctx context.Context, shadow *Projector, g *Progress, report func(Progress),
) (err error) {
	p.disk.RLock() // The database is not closed meanwhile.
	defer p.disk.RUnlock()
	d := p.disk.db
	if d == nil {
		return ErrRemaking
	}
	// run may wait for disk to replace a damaged database.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.sound, func() { cancel(context.Cause(d.sound)) })()
	served, err := p.pinned(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if failed := served.snapshot.Close(); err == nil && failed != nil {
			err = fmt.Errorf("%w: %w", errProjection, failed)
		}
	}()
	shadow.raise(served.position)
	if err := shadow.WaitPosition(ctx, served.position); err != nil {
		return context.Cause(ctx)
	}
	shadow.disk.RLock()
	defer shadow.disk.RUnlock()
	if shadow.disk.db == nil {
		return ErrRemaking
	}
	if shadow.Position() != served.position {
		return nil // The served database was replaced meanwhile, and begins again.
	}
	g.Phase = PhaseCompare
	for _, pr := range served.inStep {
		c := Comparison{Name: pr.Name}
		var first []byte
		for i := range len(pr.Tables) {
			if strings.IndexByte(pr.Ahead, pr.Tables[i]) >= 0 {
				continue
			}
			key, err := c.compare(ctx, served.snapshot, shadow.disk.db.db, pr.Tables[i])
			if err != nil {
				return err
			}
			if first == nil {
				first = key
			}
		}
		if c.Differing > 0 {
			p.metrics.diverged.Inc()
			p.opts.Logger.Error("projection differs from the fold of the log; replacing it",
				"alert", AlertDiverged, "projection", pr.Name, "rows", c.Differing, "first", fmt.Sprintf("%x", first))
		}
		g.Projections = append(g.Projections, c)
		g.Position, g.Target = shadow.Position(), p.Position()
		report(*g)
	}
	return nil
}

// pinned asks run for a view of the database.
func (p *Projector) pinned(ctx context.Context) (pinned, error) {
	request := &pin{done: make(chan pinned, 1)}
	p.pinning.Store(request)
	p.wakeUp()
	select {
	case answer := <-request.done:
		return answer, nil
	case <-ctx.Done():
	}
	if !p.pinning.CompareAndSwap(request, nil) {
		if answer := <-request.done; answer.snapshot != nil {
			_ = answer.snapshot.Close()
		}
	}
	return pinned{}, context.Cause(ctx)
}

// compare merges the rows of a table in two databases. It returns the first key that differs.
func (c *Comparison) compare(ctx context.Context, served, again pebble.Reader, table byte) (first []byte, err error) {
	bounds := &pebble.IterOptions{LowerBound: []byte{table}, UpperBound: []byte{table + 1}}
	a, err := served.NewIter(bounds)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	defer a.Close()
	b, err := again.NewIter(bounds)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	defer b.Close()
	left, right := a.First(), b.First()
	for n := 0; left || right; n++ {
		if n%compareRows == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.Rows++
		order := compareKeys(a, left, b, right)
		if order != 0 || !bytes.Equal(a.Value(), b.Value()) {
			c.Differing++
			if first == nil {
				first = bytes.Clone(a.Key())
				if order > 0 {
					first = bytes.Clone(b.Key())
				}
			}
		}
		if order <= 0 {
			left = a.Next()
		}
		if order >= 0 {
			right = b.Next()
		}
	}
	if err := errors.Join(a.Error(), b.Error()); err != nil {
		return nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	return first, nil
}

// compareKeys compares the keys of two iterators. One at its end is behind all keys.
func compareKeys(a *pebble.Iterator, left bool, b *pebble.Iterator, right bool) int {
	switch {
	case !left:
		return 1
	case !right:
		return -1
	default:
		return bytes.Compare(a.Key(), b.Key())
	}
}
