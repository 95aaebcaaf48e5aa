package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage"
)

// retryAfter a failed round, which the log outlives.
const retryAfter = time.Second

// Options of a projector.
type Options struct {
	// Dir holds the projection database and nothing else. Required; may be deleted while it is
	// closed.
	Dir string
	// FS is the file system. Default: the machine's.
	FS vfs.FS
	// Store is what is folded. Required; the caller closes it after the projector.
	Store *storage.Store
	// Cluster is the store's. A database of another one is made anew.
	Cluster storage.ClusterID
	// CacheBytes bounds the snapshots kept in memory. Default: 128 MiB.
	CacheBytes int
	// MaxSubscriptions bounds the watchers, of one run and of many. Default: 100,000.
	MaxSubscriptions int
	// Clock is the node's, for lag. Default: time.Now.
	Clock func() time.Time
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a registry that nobody reads.
	Registerer prometheus.Registerer
	// Fail is told about damage of the store that folding met, and when Pebble cannot go on (D10).
	// Required.
	Fail func(error)

	// fatal is told when Pebble cannot go on; it is Fail, also for the database of a rebuild.
	fatal func(error)
}

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 128 << 20
	}
	if o.MaxSubscriptions == 0 {
		o.MaxSubscriptions = 100_000
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.fatal == nil {
		o.fatal = o.Fail
	}
}

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("projector: Options.Dir is empty"))
	}
	if o.Store == nil {
		errs = append(errs, errors.New("projector: Options.Store is nil"))
	}
	if o.Fail == nil {
		errs = append(errs, errors.New("projector: Options.Fail is nil"))
	}
	return errors.Join(errs...)
}

// Projector folds the log into snapshots and tells watchers.
type Projector struct {
	opts    Options
	metrics *metrics
	watch   watchers
	// catchUps has room for as many as may read the log for watchers at a time.
	catchUps chan struct{}

	// disk has the database: held for reading by whoever else than run uses it, and for writing
	// while run replaces it. nil: it could not be made anew yet.
	disk struct {
		sync.RWMutex
		db *database
	}
	// live has the newest snapshot of the runs folded last, and which runs are STALE.
	live struct {
		sync.RWMutex
		runs  *snapshotCache
		stale map[string]struct{}
	}
	position atomic.Uint64 // everything up to here is folded
	// folded counts the events since the projector was opened, and flushed how many of them were
	// there when the database was flushed last. Only run uses them.
	folded, flushed uint64
	holeSaid        time.Time // when the log was told of one last
	// advanced is closed, and replaced, whenever position moves.
	advanced struct {
		sync.Mutex
		ch chan struct{}
	}

	// rebuilds is held by a rebuild; adopting is set while run is asked to serve its result.
	rebuilds sync.Mutex
	adopting atomic.Pointer[adoption]
	// wake ends the waiting of run. Whoever sets adopting calls it afterwards.
	wake atomic.Pointer[context.CancelFunc]

	closing context.Context
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Open opens or makes the projection database and goes on folding where it ends (PRJ-13).
func Open(opts Options) (*Projector, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
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
	p := &Projector{opts: opts, closing: ctx, stop: stop}
	p.disk.db = db
	p.live.runs = newSnapshotCache(opts.CacheBytes)
	p.live.stale = map[string]struct{}{}
	p.watch.limit = opts.MaxSubscriptions
	p.watch.published.Store(uint64(db.position))
	p.catchUps = make(chan struct{}, maxCatchUps)
	p.advanced.ch = make(chan struct{})
	p.position.Store(uint64(db.position))
	p.metrics = newMetrics(opts.Registerer, p)
	p.done.Go(func() { p.run(ctx) })
	return p, nil
}

// Close stops folding and stores what memory has.
func (p *Projector) Close() error {
	p.stop()
	p.rebuilds.Lock() // waits for a rebuild to end
	defer p.rebuilds.Unlock()
	p.done.Wait()
	p.metrics.unregister(p.opts.Registerer)
	if p.disk.db == nil {
		return nil
	}
	if err := p.disk.db.close(p.storeRest); err != nil {
		// Nothing is lost: the next Open folds it again.
		p.opts.Logger.Warn("projection database not closed well", "err", err)
	}
	return nil
}

// Position up to which everything is folded.
func (p *Projector) Position() storage.Position { return storage.Position(p.position.Load()) }

// WaitPosition returns once everything up to a position is folded, or with the context's error.
func (p *Projector) WaitPosition(ctx context.Context, at storage.Position) error {
	for {
		p.advanced.Lock()
		ch := p.advanced.ch
		p.advanced.Unlock()
		if p.Position() >= at {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run folds until the projector is closed. Trouble with the database is no reason to stop taking
// appends: it is made anew (PRJ-13).
func (p *Projector) run(ctx context.Context) {
	for {
		err := p.follow(ctx)
		for errors.Is(err, errProjection) && ctx.Err() == nil {
			p.opts.Logger.Error("projection database failed, it is made anew", "err", err)
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

// follow pulls: it waits until the store is ahead, and reads (D9). It returns why it cannot go on;
// nil when another database has taken the place of the one that it began with.
func (p *Projector) follow(ctx context.Context) error {
	sound := p.disk.db.sound
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(sound, func() { cancel(context.Cause(sound)) })()
	log := p.opts.Store.FollowAhead(storage.Facts)
	defer log.Close()
	pace := time.NewTicker(roundEvery)
	defer pace.Stop()
	for {
		p.await(ctx)
		// The store may be ahead all the time.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		complete, err := p.round(ctx, log, 0)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if replaced, err := p.replace(ctx); replaced {
			return err
		}
		if complete {
			select {
			case <-pace.C:
			case <-ctx.Done():
			}
		}
	}
}

// await returns when the store is ahead, or when nothing has come for a while and snapshots could
// be stored.
func (p *Projector) await(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.wake.Store(&cancel)
	if p.adopting.Load() != nil {
		return
	}
	if p.live.runs.oldest() != nil {
		defer time.AfterFunc(idleAfter, cancel).Stop()
	}
	_ = p.opts.Store.Wait(ctx, p.Position())
}

// remake replaces the database by an empty one, from which folding begins again. Until then,
// snapshots are folded from the log on the way out.
func (p *Projector) remake() (err error) {
	p.disk.Lock()
	defer p.disk.Unlock()
	if p.disk.db != nil {
		_ = p.disk.db.db.Close() // it is damaged, and goes
	}
	if p.disk.db, err = remakeDatabase(&p.opts); err != nil {
		return err
	}
	p.live.Lock()
	p.live.runs = newSnapshotCache(p.opts.CacheBytes)
	p.position.Store(uint64(p.disk.db.position)) // whoever looks at both sees them agree
	p.live.Unlock()
	p.watch.published.Store(uint64(p.disk.db.position))
	return nil
}

// load returns the newest snapshot known of a run, from memory, stored, or the empty start.
func (p *Projector) load(run *storage.Run) (s *Snapshot, err error) {
	p.live.RLock()
	s = p.live.runs.get(run.RunID)
	p.live.RUnlock()
	if s != nil {
		return s, nil
	}
	p.disk.RLock()
	defer p.disk.RUnlock()
	s, _, err = p.loadStored(run)
	return s, err
}

// loadStored is load for a caller that holds disk, or is the one that changes it. It returns about
// what the snapshot takes in memory, too.
func (p *Projector) loadStored(run *storage.Run) (s *Snapshot, weight int, err error) {
	if p.disk.db != nil {
		if s, weight, err = p.disk.db.load(run.RunID); err != nil {
			p.disk.db.damaged(err)
			return nil, 0, err
		}
	}
	if s == nil {
		return Empty(run), 0, nil
	}
	return s, weight, nil
}
