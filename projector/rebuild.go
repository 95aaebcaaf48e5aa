package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage"
)

// ErrRebuilding means that another rebuild is under way.
var ErrRebuilding = errors.New("projector: a rebuild is under way")

const (
	rebuiltSuffix  = ".rebuilt"  // of the directory next to Options.Dir that a rebuild fills
	replacedSuffix = ".replaced" // of the directory that it has replaced
	// rebuildReport is the time between two reports of a rebuild.
	rebuildReport = 200 * time.Millisecond
)

// Phase is a part of a rebuild.
type Phase string

// The phases, in their order.
const (
	PhaseFold    Phase = "fold"    // the log is folded into a new database
	PhaseCompare Phase = "compare" // the new database is compared with the served one
	PhaseDone    Phase = "done"    // the new database is served
)

// Progress is the progress of a rebuild.
type Progress struct {
	Phase    Phase
	Position storage.Position // up to which the new database has the log
	Target   storage.Position // up to which the served one has it
	Compared int              // runs
	// Different has the first runs whose snapshots differed. The rebuild replaces them.
	Different []string
	Differing int // runs whose snapshots differed
	// Projections has the results of the other projections that are in step.
	Projections []Comparison
}

// Comparison is the result of comparing the tables of a projection, row by row.
type Comparison struct {
	Name      string
	Rows      int // compared
	Differing int // rows that are missing, surplus or of another value in the served tables
}

// maxDifferent bounds the runs that a rebuild names.
const maxDifferent = 100

// Rebuild folds the whole log into a second database, compares each projection with the served one,
// and serves the second database instead. Reads, watches and folding continue meanwhile. Rebuild
// reports its progress now and then, and returns the result. If the context ends early, nothing
// changes.
func (p *Projector) Rebuild(ctx context.Context, report func(Progress)) (Progress, error) {
	if !p.rebuilds.TryLock() {
		return Progress{}, ErrRebuilding
	}
	defer p.rebuilds.Unlock() // Close waits for it
	if p.closing.Err() != nil {
		return Progress{}, errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.closing, func() { cancel(errClosed) })()

	opts := p.opts
	opts.Dir += rebuiltSuffix
	opts.CacheBytes = p.opts.CacheBytes / 4
	opts.ceiling = &ceiling{}
	// No alert is raised a second time.
	opts.Registerer, opts.Logger = prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	opts.Fail = func(err error) { cancel(err) }
	opts.ceiling.at.Store(uint64(p.Position()))
	if err := opts.FS.RemoveAll(opts.Dir); err != nil {
		return Progress{}, fmt.Errorf("%w: remove %s: %w", errProjection, opts.Dir, err)
	}
	shadow, err := Open(opts)
	if err != nil {
		return Progress{}, err
	}
	progress, err := p.rebuild(ctx, shadow, report)
	if err = errors.Join(err, shadow.Close()); err == nil {
		err = p.adopt(ctx, &adoption{dir: opts.Dir, position: shadow.Position(), done: make(chan error, 1)})
	}
	if err != nil {
		return progress, errors.Join(err, opts.FS.RemoveAll(opts.Dir))
	}
	progress.Phase = PhaseDone
	report(progress)
	return progress, nil
}

var errClosed = errors.New("projector: closed")

// rebuild waits until the shadow has nearly caught up, and compares.
func (p *Projector) rebuild(ctx context.Context, shadow *Projector, report func(Progress)) (g Progress, err error) {
	g.Phase = PhaseFold
	for near := false; !near; {
		g.Position, g.Target = shadow.Position(), p.Position()
		report(g)
		shadow.raise(g.Target)
		step, cancel := context.WithTimeout(ctx, rebuildReport)
		near = shadow.WaitPosition(step, g.Target) == nil
		cancel()
		if ctx.Err() != nil {
			return g, context.Cause(ctx)
		}
	}
	if err := p.compareTables(ctx, shadow, &g, report); err != nil {
		return g, err
	}
	shadow.raise(unbounded)
	if err := shadow.WaitPosition(ctx, p.Position()); err != nil {
		return g, context.Cause(ctx)
	}
	err = p.compare(ctx, shadow, &g, report)
	return g, err
}

// adoption is a request to run to serve another database.
type adoption struct {
	dir      string
	position storage.Position // up to which it has everything
	done     chan error       // has room for one
}

// adopt asks run to serve a closed database instead of the one that it writes.
func (p *Projector) adopt(ctx context.Context, a *adoption) error {
	p.adopting.Store(a)
	p.wakeUp()
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
	}
	if p.adopting.CompareAndSwap(a, nil) {
		return context.Cause(ctx)
	}
	return <-a.done // it has begun
}

// replace answers an adoption. It waits until the other database is not ahead, because watchers
// must learn of every event. Only run calls it, between two rounds. Readers of the database wait
// while the other one is folded up to the position of this one, so that no reader sees time go
// back.
func (p *Projector) replace(ctx context.Context) (replaced bool, err error) {
	a := p.adopting.Load()
	if a == nil || p.Position() < a.position || !p.adopting.CompareAndSwap(a, nil) {
		return false, nil
	}
	p.disk.Lock()
	defer p.disk.Unlock()
	upTo := p.Position()
	if err = p.swap(a.dir); err == nil {
		log := p.opts.Store.FollowAhead(storage.Facts)
		defer log.Close()
		for err == nil && p.Position() < upTo {
			if err = ctx.Err(); err == nil {
				_, err = p.round(log, upTo, false)
			}
		}
	}
	a.done <- err
	return true, err
}

// swap moves the directories and opens the new database. The caller holds disk. If a crash leaves
// no database, the next start rebuilds it.
func (p *Projector) swap(dir string) error {
	old := p.opts.Dir + replacedSuffix
	fs := p.opts.FS
	err := p.disk.db.db.Close()
	p.disk.db = nil // what follows may fail
	if err = errors.Join(err, fs.RemoveAll(old)); err == nil {
		err = fs.Rename(p.opts.Dir, old)
	}
	if err == nil {
		err = fs.Rename(dir, p.opts.Dir)
	}
	if err != nil {
		return fmt.Errorf("%w: replace: %w", errProjection, err)
	}
	db, err := tryDatabase(&p.opts)
	if err != nil {
		return err
	}
	if err := p.use(db); err != nil {
		return errors.Join(err, db.db.Close())
	}
	return fs.RemoveAll(old)
}

// removeLeftovers deletes the directories of a rebuild that ended with the process.
func removeLeftovers(o *Options) error {
	return errors.Join(o.FS.RemoveAll(o.Dir+rebuiltSuffix), o.FS.RemoveAll(o.Dir+replacedSuffix))
}
