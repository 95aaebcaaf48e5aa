package projector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/storage"
)

// retryAfter is the time between two attempts to replace a damaged database.
const retryAfter = time.Second

// Projector tails the log, folds it into projections, and publishes changed runs.
//
// One goroutine, run, folds and writes. It works in rounds. Readers are any number of goroutines,
// and find the newest snapshot of a run in memory (live), else in the database (disk), else by
// folding the log. Rebuild runs on the goroutine of its caller, which hands requests to run.
//
// How a round hands over what it has folded, in this order:
//
//	write     if a write is due: the rows of the projections, with their watermarks
//	live      gets the new snapshots, with its lock; folded runs are not STALE any more
//	position  moves: a goroutine that reads the position first finds in live or disk all up to it
//	at        of each projection moves, as far as it is written
//	advance   wakes the goroutines that wait for a position
//	publish   wakes the watchers of the changed runs
//	store     after a write: snapshots that are due go into the database, and then, if memory is
//	          short, out of live
//
// A snapshot leaves live only when the database shows it. So a reader that looks into live first
// and into the database afterwards misses none.
type Projector struct {
	// Set by Open, and never again. watch has locks of its own.

	opts    Options
	metrics *metrics
	watch   *watch.Hub
	// projections never changes, but what they point at does, see projection. runs and list are two
	// of them.
	projections []*projection
	runs, list  *projection

	// Used by run alone, and before it by Open, and after it by Close.

	// folded counts the events since the projector was opened, flushed those at the last flush.
	folded, flushed uint64
	// more has, for runs that a catch-up has met, the runSeq of an event that it will come to.
	more     map[string]uint64
	holeSaid time.Time // of the last log line about a hole

	// Shared with readers. Only run writes, so it reads without a lock; it takes the locks to
	// write.

	// disk has the database; nil: there is no new one yet, or the projector is closed. Readers hold
	// the lock for reading while they use the database, and run and Close for writing while they
	// replace it or take it away: so no database is closed under a reader.
	disk struct {
		sync.RWMutex
		db *database
	}
	// live has the newest snapshots of the runs folded last, and the runs that are STALE. Of runs,
	// readers use only the snapshots; which of them are stored, and their order, run changes
	// without the lock.
	live struct {
		sync.RWMutex
		runs  *snapshotCache
		stale map[string]struct{}
	}
	// position is how far the log is folded. It goes back only when the database is replaced by one
	// that has less. Then it moves under the lock of live, so that a reader with the lock finds
	// snapshots and position of one database.
	position atomic.Uint64
	// advanced.ch is closed and replaced when a position has moved. A goroutine that waits takes it
	// first and looks at the position afterwards, so that it misses no move.
	advanced struct {
		sync.Mutex
		ch chan struct{}
	}

	// Requests to run. A goroutine first makes its request and then calls wakeUp. run stores wake
	// first and then looks for requests. So either run sees the request, or the goroutine sees the
	// wake that ends the waiting of run.

	// waiters counts the goroutines that wait for a position: every round writes for them.
	waiters atomic.Int32
	// adopting and pinning are requests of a rebuild. The goroutine that swaps one for nil decides
	// what becomes of it: run answers it, the rebuild withdraws it.
	adopting atomic.Pointer[adoption]
	pinning  atomic.Pointer[pin]
	wake     atomic.Pointer[context.CancelFunc]

	// rebuilds is held by Rebuild from its begin to its end: there is one at a time. Close takes it
	// to wait for that end.
	rebuilds sync.Mutex

	// Close ends closing, which ends run and a rebuild, and joins run.

	closing context.Context
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Open opens the projection database, or makes a new one, and folds on from its watermarks
// (PRJ-13).
func Open(opts Options) (*Projector, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	projections, err := newProjections(&opts)
	if err != nil {
		return nil, err
	}
	if err := removeLeftovers(&opts); err != nil {
		return nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	db, err := openDatabase(&opts)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Projector{
		opts: opts, closing: ctx, stop: stop,
		projections: projections, runs: projections[0], list: projections[1],
	}
	p.live.stale, p.more = map[string]struct{}{}, map[string]uint64{}
	p.advanced.ch = make(chan struct{})
	if err := p.useOrRemake(db); err != nil {
		stop()
		return nil, err
	}
	p.watch = watch.NewHub(opts.MaxSubscriptions, opts.Store, source{p})
	p.watch.Reset(p.Position())
	p.metrics = newMetrics(opts.Registerer, p)
	p.done.Go(func() { p.run(ctx) })
	return p, nil
}

// useOrRemake makes a database the one that is served, or replaces it where it is damaged: the log
// has everything (PRJ-13).
func (p *Projector) useOrRemake(db *database) error {
	err := p.use(db)
	if err == nil {
		return nil
	}
	err = errors.Join(err, db.db.Close())
	if !errors.Is(err, errProjection) {
		return err
	}
	p.opts.Logger.Warn("cannot read projection database; rebuilding it from the log", "dir", p.opts.Dir, "err", err)
	if db, err = remakeDatabase(&p.opts); err != nil {
		return err
	}
	if err = p.use(db); err != nil {
		return errors.Join(err, db.db.Close())
	}
	return nil
}

// use makes a database the one that is served, with nothing in memory. The caller holds disk, or is
// Open.
func (p *Projector) use(db *database) error {
	if err := p.arrange(db); err != nil {
		return err
	}
	p.disk.db = db
	p.live.Lock()
	defer p.live.Unlock()
	p.live.runs = newSnapshotCache(p.opts.CacheBytes)
	p.position.Store(uint64(db.opened.from)) // under live, so that a reader of both sees them agree
	return nil
}

// Close stops folding and stores the snapshots that are in memory only.
func (p *Projector) Close() error {
	p.stop()
	p.rebuilds.Lock() // waits for a rebuild to end
	defer p.rebuilds.Unlock()
	p.done.Wait()
	p.metrics.unregister(p.opts.Registerer)
	if p.disk.db == nil {
		return nil
	}
	hide := func() {
		p.disk.Lock()
		defer p.disk.Unlock()
		p.disk.db = nil
	}
	if err := p.disk.db.close(p.storeRest, hide); err != nil {
		p.opts.Logger.Warn("cannot close projection database; will fold again", "err", err)
	}
	return nil
}

// Position returns the position up to which the tail has folded the log.
func (p *Projector) Position() storage.Position { return storage.Position(p.position.Load()) }

// WaitPosition waits until the snapshots and the list have everything up to a position, or until
// the context ends.
func (p *Projector) WaitPosition(ctx context.Context, at storage.Position) error {
	return p.wait(ctx, func() bool { return min(p.Position(), storage.Position(p.list.at.Load())) >= at })
}

// Wait waits until the tables of a projection have everything up to a position, or until the
// context ends.
func (p *Projector) Wait(ctx context.Context, name string, at storage.Position) error {
	pr, err := p.projection(name)
	if err != nil {
		return err
	}
	return p.wait(ctx, func() bool { return storage.Position(pr.at.Load()) >= at })
}

// wait waits until a condition on positions holds.
func (p *Projector) wait(ctx context.Context, holds func() bool) error {
	if holds() {
		return nil
	}
	p.waiters.Add(1)
	defer p.waiters.Add(-1)
	p.wakeUp()
	for {
		p.advanced.Lock()
		ch := p.advanced.ch
		p.advanced.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// advance wakes the goroutines that wait for a position.
func (p *Projector) advance() {
	p.advanced.Lock()
	close(p.advanced.ch)
	p.advanced.ch = make(chan struct{})
	p.advanced.Unlock()
}

func (p *Projector) projection(name string) (*projection, error) {
	for _, pr := range p.projections {
		if pr.Name == name {
			return pr, nil
		}
	}
	return nil, fmt.Errorf("projector: no projection %q", name)
}

// run folds until the projector is closed. A fault of the database does not stop the node from
// taking appends: run replaces the database (PRJ-13).
func (p *Projector) run(ctx context.Context) {
	for {
		err := p.follow(ctx)
		for errors.Is(err, errProjection) && ctx.Err() == nil {
			p.opts.Logger.Error("projection database failed; rebuilding it from the log", "err", err)
			select {
			case <-time.After(retryAfter):
				err = p.remake()
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.opts.Fail(fmt.Errorf("projector: %w", err))
			return
		}
	}
}

// follow tails the log: it waits until the store is ahead, and pulls (D9). Between two rounds it
// brings projections on that are behind. It returns the reason for which it must end, or nil when
// another database has replaced the one that it began with.
func (p *Projector) follow(ctx context.Context) error {
	sound := p.disk.db.sound
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(sound, func() { cancel(context.Cause(sound)) })()
	log := p.opts.follow()
	defer log.Close()
	behind := p.opts.Store.FollowAhead(storage.Facts)
	defer behind.Close()
	throttle := time.NewTicker(roundEvery)
	defer throttle.Stop()
	for {
		_, busy := p.lowest()
		idle := false
		if !busy {
			idle = p.await(ctx)
		}
		// The store may be ahead all the time.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		complete := true
		if applied := p.opts.Store.Applied(); !busy || applied.Position() > p.Position() {
			var err error
			if complete, err = p.round(log, 0, idle); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if replaced, err := p.replace(ctx); replaced {
			return err
		}
		p.answerPin()
		switch {
		case busy:
			if err := p.catchUp(ctx, behind); err != nil && ctx.Err() == nil {
				return err
			}
		case complete:
			select {
			case <-throttle.C:
			case <-ctx.Done():
			}
		}
	}
}

// await returns when the store is ahead, when a rebuild or a waiting goroutine needs run, or when
// no event has come for a while and something could be stored. It reports whether none has come.
func (p *Projector) await(ctx context.Context) (idle bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.wake.Store(&cancel)
	if p.adopting.Load() != nil || p.pinning.Load() != nil || p.waiters.Load() > 0 && !p.written() {
		return false
	}
	var passed atomic.Bool
	if p.live.runs.oldest() != nil || !p.written() {
		defer time.AfterFunc(idleAfter, func() { passed.Store(true); cancel() }).Stop()
	}
	if p.opts.ceiling.below(p.Position() + 1) {
		<-ctx.Done()
	} else {
		_ = p.opts.Store.Wait(ctx, p.Position())
	}
	return passed.Load()
}

// wakeUp ends the waiting of run.
func (p *Projector) wakeUp() {
	if wake := p.wake.Load(); wake != nil {
		(*wake)()
	}
}

// remake replaces the database by an empty one, from which folding begins again. Until it has
// caught up, snapshots are folded from the log for each reader.
func (p *Projector) remake() error {
	p.disk.Lock()
	damaged := p.disk.db
	p.disk.db = nil
	p.disk.Unlock()
	// Close waits for compactions, and other files may be slow. Readers do not wait meanwhile.
	if damaged != nil {
		_ = damaged.db.Close() // it is deleted
	}
	db, err := remakeDatabase(&p.opts)
	if err != nil {
		return err
	}
	p.disk.Lock()
	defer p.disk.Unlock()
	if err := p.use(db); err != nil {
		return errors.Join(err, db.db.Close())
	}
	p.watch.Reset(p.Position())
	return nil
}

// load returns the newest snapshot of a run from memory, or the stored one, or the empty one.
func (p *Projector) load(r *storage.Run) (s *run.Snapshot, err error) {
	p.live.RLock()
	s = p.live.runs.get(r.RunID)
	p.live.RUnlock()
	if s != nil {
		return s, nil
	}
	p.disk.RLock()
	defer p.disk.RUnlock()
	s, _, err = p.loadStored(r)
	return s, err
}

// loadStored returns the stored snapshot of a run, or the empty one, and about its size in memory.
// The caller holds disk, or is run.
func (p *Projector) loadStored(r *storage.Run) (s *run.Snapshot, weight int, err error) {
	if p.disk.db != nil {
		if s, weight, err = p.disk.db.load(r.RunID); err != nil {
			p.disk.db.damaged(err)
			return nil, 0, err
		}
	}
	if s == nil {
		return run.Empty(r), 0, nil
	}
	return s, weight, nil
}
