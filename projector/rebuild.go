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

// ErrRebuilding means that a rebuild is under way already.
var ErrRebuilding = errors.New("projector: a rebuild is under way")

const (
	rebuiltSuffix  = ".rebuilt"  // of the directory beside Options.Dir that a rebuild fills
	replacedSuffix = ".replaced" // of the one that it has replaced
	// rebuildReport is how often a rebuild tells how far it is.
	rebuildReport = 200 * time.Millisecond
)

// Phase is a part of a rebuild.
type Phase string

// The phases, in their order.
const (
	PhaseFold    Phase = "fold"    // the log into a new database
	PhaseCompare Phase = "compare" // run by run, with what is served
	PhaseDone    Phase = "done"    // the new database is served
)

// Progress is how far a rebuild is.
type Progress struct {
	Phase    Phase
	Position storage.Position // up to which is folded
	Target   storage.Position // up to which is served
	Compared int              // runs
	// the first runs whose snapshots differed; what is served then is the new one
	Different []string
	Differing int // how many did
}

// maxDifferent bounds the runs that a rebuild names.
const maxDifferent = 100

// Rebuild folds the whole log again into a database beside the one that is served, compares their
// snapshots of each run, and puts the new one in the place of the old, while reads, watches and
// folding go on. It reports now and then, and returns what it came to. When the context ends early,
// everything stays as it was.
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
	// it alerts on nothing anew
	opts.Registerer, opts.Logger = prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	opts.Fail = func(err error) { cancel(err) }
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

// rebuild waits until the shadow has caught up, and compares.
func (p *Projector) rebuild(ctx context.Context, shadow *Projector, report func(Progress)) (g Progress, err error) {
	g.Phase = PhaseFold
	for {
		g.Position, g.Target = shadow.Position(), p.Position()
		report(g)
		if g.Position >= g.Target {
			err = p.compare(ctx, shadow, &g, report)
			return g, err
		}
		step, cancel := context.WithTimeout(ctx, rebuildReport)
		_ = shadow.WaitPosition(step, g.Target)
		cancel()
		if ctx.Err() != nil {
			return g, context.Cause(ctx)
		}
	}
}

// adoption asks run to serve another database.
type adoption struct {
	dir      string
	position storage.Position // up to which it has everything
	done     chan error       // has room for one
}

// adopt has the goroutine that folds put a closed database in the place of the one that it writes.
func (p *Projector) adopt(ctx context.Context, a *adoption) error {
	p.adopting.Store(a)
	if wake := p.wake.Load(); wake != nil {
		(*wake)()
	}
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

// replace serves another database, if one is there to be adopted that is not ahead: watchers must
// be told of every event. Only run calls it, between two rounds. Readers of the database wait
// meanwhile: the other one is folded up to where this one was, so that nothing goes back.
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
				_, err = p.round(ctx, log, upTo)
			}
		}
	}
	a.done <- err
	return true, err
}

// swap moves directories and opens what is in the place then. The caller holds disk. A crash in the
// middle leaves no database, which is then made anew.
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
	p.disk.db = db
	p.live.Lock()
	p.live.runs = newSnapshotCache(p.opts.CacheBytes)
	p.position.Store(uint64(db.position))
	p.live.Unlock()
	return fs.RemoveAll(old)
}

// removeLeftovers of a rebuild that ended with the process.
func removeLeftovers(o *Options) error {
	return errors.Join(o.FS.RemoveAll(o.Dir+rebuiltSuffix), o.FS.RemoveAll(o.Dir+replacedSuffix))
}
