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

const (
	// storeEvery is how many events a stored snapshot may lag behind its run, or storeShare of the run when
	// that is more: to write a long run's snapshot costs as much as to fold a part of the run. Memory has the
	// snapshots of active runs; one that leaves it is stored as it is.
	storeEvery = 64
	storeShare = 4
	// roundEvents closes a round of folding, at the end of a proposal.
	roundEvents = 4096
	// roundEvery is how often a round may begin: under load, more events share what a round costs.
	roundEvery = 5 * time.Millisecond
	// retryAfter a failed round, which the log outlives.
	retryAfter = time.Second
)

// Options of a projector.
type Options struct {
	// Dir holds the projection database and nothing else. Required; may be deleted while it is closed.
	Dir string
	// FS is the file system. Default: the machine's.
	FS vfs.FS
	// Store is what is folded. Required; the caller closes it after the projector.
	Store *storage.Store
	// Cluster is the store's. A database of another one is made anew.
	Cluster storage.ClusterID
	// CachedRuns bounds the snapshots kept in memory. Default: 10,000.
	CachedRuns int
	// MaxSubscriptions bounds the watchers. Default: 100,000.
	MaxSubscriptions int
	// Clock is the node's, for lag. Default: time.Now.
	Clock func() time.Time
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a registry that nobody reads.
	Registerer prometheus.Registerer
	// Fail is told about damage of the store that folding met (D10). Required.
	Fail func(error)
}

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.CachedRuns == 0 {
		o.CachedRuns = 10_000
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

	// disk has the database: held for reading by whoever else than run uses it, and for writing while run
	// replaces it. nil: it could not be made anew yet.
	disk struct {
		sync.RWMutex
		db *database
	}
	// live has the newest snapshot of the runs folded last.
	live struct {
		sync.RWMutex
		runs *snapshotCache
	}
	position atomic.Uint64 // everything up to here is folded
	left     []*cached     // runs that left live and are not stored yet; only run uses it
	// advanced is closed, and replaced, whenever position moves.
	advanced struct {
		sync.Mutex
		ch chan struct{}
	}

	stop context.CancelFunc
	done sync.WaitGroup
}

// Open opens or makes the projection database and goes on folding where it ends (PRJ-13).
func Open(opts Options) (*Projector, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	db, err := openDatabase(&opts)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Projector{opts: opts, stop: stop}
	p.disk.db = db
	p.live.runs = newSnapshotCache(opts.CachedRuns)
	p.watch.limit = opts.MaxSubscriptions
	p.advanced.ch = make(chan struct{})
	p.position.Store(uint64(db.position))
	p.metrics = newMetrics(opts.Registerer, p)
	p.done.Go(func() { p.run(ctx) })
	return p, nil
}

// Close stops folding. What was not stored is folded again after the next Open.
func (p *Projector) Close() error {
	p.stop()
	p.done.Wait()
	p.metrics.unregister(p.opts.Registerer)
	if p.disk.db == nil {
		return nil
	}
	if err := p.disk.db.close(); err != nil {
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

// run folds until the projector is closed. Trouble with the database is no reason to stop taking appends:
// it is made anew (PRJ-13).
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

// follow pulls: it waits until the store is ahead, and reads (D9). It returns why it cannot go on.
func (p *Projector) follow(ctx context.Context) error {
	sound := p.disk.db.sound
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(sound, func() { cancel(context.Cause(sound)) })()
	log := p.opts.Store.Follow(storage.Facts)
	pace := time.NewTicker(roundEvery)
	defer pace.Stop()
	// Wait does not look at the context while the store is ahead.
	for ctx.Err() == nil && p.opts.Store.Wait(ctx, p.Position()) == nil {
		complete, err := p.round(ctx, log)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if complete {
			select {
			case <-pace.C:
			case <-ctx.Done():
			}
		}
	}
	return context.Cause(ctx)
}

// remake replaces the database by an empty one, from which folding begins again. Until then, snapshots
// are folded from the log on the way out.
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
	p.live.runs = newSnapshotCache(p.opts.CachedRuns)
	p.live.Unlock()
	p.left = nil
	p.position.Store(uint64(p.disk.db.position))
	return nil
}

// round folds what was committed since the last one, up to about roundEvents, and stores and publishes
// the result. It ends where a proposal ends, so that the position is always true, and tells whether it came
// to the end of the log.
func (p *Projector) round(ctx context.Context, log *storage.Follower) (complete bool, err error) {
	applied := p.opts.Store.Applied()
	r := round{p: p, changed: map[string]*folded{}}
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
	events   int
	changed  map[string]*folded
}

// folded is a run that a round changed.
type folded struct {
	run    *storage.Run
	before *Snapshot // as the round found it
	now    *Snapshot
	stored uint64 // lastEventSeq of the stored snapshot
	made   bool   // or its metadata changed
}

// due says whether the snapshot has to be stored: it lags too far behind, or the run has ended and is read as
// it is from then on.
func (f *folded) due() bool {
	return f.now.LastEventSeq >= f.stored+max(storeEvery, f.stored/storeShare) ||
		f.now.Status.Terminal() && f.now.LastEventSeq > f.stored
}

func (r *round) fold(c *storage.Commit) error {
	r.position = c.Position
	r.events += max(1, len(c.Records)) // a run without events counts too
	f, err := r.begin(c)
	if err != nil {
		return err
	}
	if len(c.Records) == 0 {
		f.made, f.run = true, c.Run
		return nil
	}
	f.now = ReduceReporting(f.now, c.Records, func(i Inconsistency) { r.p.alert(c.Run.RunID, i) })
	r.p.metrics.events.Add(float64(len(c.Records)))
	return nil
}

// begin returns the run of a commit as it was before the commit.
func (r *round) begin(c *storage.Commit) (*folded, error) {
	if f := r.changed[c.Run.RunID]; f != nil {
		return f, nil
	}
	s, stored, err := r.p.load(c.Run)
	if err != nil {
		return nil, err
	}
	if mayLack(s, c) {
		// The stored snapshot is older than this round: catch up from the run itself.
		if s, err = foldBefore(r.p.opts.Store, s, c); err != nil {
			return nil, err
		}
	}
	f := &folded{run: c.Run, before: s, now: s, stored: stored}
	r.changed[c.Run.RunID] = f
	return f, nil
}

// listed says whether the run's row in the list is as it was.
func (f *folded) listed() bool { return !f.made && f.now.Status == f.before.Status }

// mayLack says whether a snapshot may lack events of the run from before a commit.
func mayLack(s *Snapshot, c *storage.Commit) bool {
	if len(c.Records) == 0 {
		return s.LastEventSeq < c.Run.LastSeq
	}
	return s.LastEventSeq+1 < c.Records[0].RunSeq
}

// finish stores what is due, makes the new snapshots visible and tells the watchers.
func (r *round) finish() error {
	p := r.p
	if err := p.disk.db.store(r.position, r.changed, p.left); err != nil {
		return err
	}
	p.left = p.left[:0]
	now := p.opts.Clock()
	p.live.Lock()
	for id, f := range r.changed {
		if left := p.live.runs.put(id, f.now, f.stored); left != nil && left.snapshot.LastEventSeq > left.stored {
			p.left = append(p.left, left)
		}
	}
	p.live.Unlock()
	p.position.Store(uint64(r.position))
	p.advanced.Lock()
	close(p.advanced.ch)
	p.advanced.ch = make(chan struct{})
	p.advanced.Unlock()
	for id, f := range r.changed {
		if f.now.LastEventSeq > f.before.LastEventSeq {
			p.metrics.lag.Observe(now.Sub(f.now.PersistedAt).Seconds())
			p.watch.publish(id, f.now)
		}
	}
	return nil
}

// alert tells the operator about an event that its run's state did not allow (PRJ-8).
func (p *Projector) alert(runID string, i Inconsistency) {
	p.metrics.inconsistencies.Inc()
	p.opts.Logger.Warn("event not allowed by the run's state", "alert", i.Kind, "run", runID,
		"seq", i.RunSeq, "event", i.EventID, "state", i.State, "attempted", i.Attempted)
}

// load returns the newest snapshot known of a run, from memory, stored, or the empty start; and the
// lastEventSeq of the stored one.
func (p *Projector) load(run *storage.Run) (s *Snapshot, stored uint64, err error) {
	p.live.RLock()
	s, stored = p.live.runs.get(run.RunID)
	p.live.RUnlock()
	if s != nil {
		return s, stored, nil
	}
	p.disk.RLock()
	defer p.disk.RUnlock()
	if p.disk.db != nil {
		if s, err = p.disk.db.load(run.RunID); err != nil {
			p.disk.db.damaged(err)
			return nil, 0, err
		}
	}
	if s == nil {
		return Empty(run), 0, nil
	}
	return s, s.LastEventSeq, nil
}

// Snapshot returns the fold of everything that a view shows, or of more: never of less (D9).
func (p *Projector) Snapshot(v *storage.View) (*Snapshot, error) {
	s, _, err := p.load(v.Run)
	if err != nil {
		s = Empty(v.Run) // the log has everything
	}
	return foldView(v, s, v.Run.Position+1)
}

// foldBefore folds what the run of a commit had before it, from a snapshot on.
func foldBefore(store *storage.Store, s *Snapshot, c *storage.Commit) (_ *Snapshot, err error) {
	v, err := store.View(c.Run.RunID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return foldView(v, s, c.Position)
}

// foldView folds the events of a run at positions before end, from a snapshot on.
func foldView(v *storage.View, s *Snapshot, end storage.Position) (*Snapshot, error) {
	if s.LastEventSeq >= v.Run.LastSeq {
		return s, nil
	}
	var batch []storage.Record
	for rec, err := range v.Events(s.LastEventSeq) {
		if err != nil {
			return nil, err
		}
		if rec.Position >= end {
			break
		}
		if batch = append(batch, *rec); len(batch) == roundEvents {
			s, batch = ReduceAll(s, batch), batch[:0]
		}
	}
	return ReduceAll(s, batch), nil
}
