package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage/internal/directory"
	"runlog/storage/internal/read"
	"runlog/storage/internal/record"
	"runlog/storage/internal/rowcache"
)

// Options of a store.
type Options struct {
	// Dir holds the store's files and nothing else; internal/directory/layout.go tells which.
	Dir string
	// FS is the file system. Default: the machine's.
	FS vfs.FS
	// Cluster is the cluster whose entries the store applies. Required.
	Cluster ClusterID
	// CacheBytes bounds Pebble's block cache. Default: 128 MiB.
	CacheBytes int64
	// MemTableBytes is what Pebble gathers in memory before it flushes; two may exist. Default: 64
	// MiB.
	MemTableBytes uint64
	// OpenFiles bounds the tables that one database keeps open. Default: Pebble's, 1,000.
	OpenFiles int
	// ActiveBytes bounds the memory of runs that are being appended to (D6). Default: 128 MiB.
	ActiveBytes int
	// RowBytes bounds the memory of the rows of machines that were read or written most recently
	// (D12). Default: 16 MiB.
	RowBytes int
	// Machines are the parts of the state machine beside the core. A store that applies the log
	// needs all of them that the log has operations of.
	Machines []Machine
	// FeatureLevel is the highest feature level that the build supports. Default: CoreLevel.
	FeatureLevel uint32
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a registry of its own.
	Registerer prometheus.Registerer
	// Fail is told about an error in the background after which the store must not be used (D10).
	// It should end the process and not return.
	Fail func(error)
}

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 128 << 20
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 64 << 20
	}
	if o.ActiveBytes == 0 {
		o.ActiveBytes = 128 << 20
	}
	if o.RowBytes == 0 {
		o.RowBytes = 16 << 20
	}
	if o.FeatureLevel == 0 {
		o.FeatureLevel = CoreLevel
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
		errs = append(errs, errors.New("storage: Options.Dir is empty"))
	}
	if o.Cluster == (ClusterID{}) {
		errs = append(errs, errors.New("storage: Options.Cluster is empty"))
	}
	if o.Fail == nil {
		errs = append(errs, errors.New("storage: Options.Fail is nil"))
	}
	return errors.Join(errs...)
}

// directory returns the options of the store's directory.
func (o *Options) directory() directory.Options {
	return directory.Options{
		Dir: o.Dir, FS: o.FS, Cluster: o.Cluster, CacheBytes: o.CacheBytes, MemTableBytes: o.MemTableBytes, OpenFiles: o.OpenFiles,
		FeatureLevel: o.FeatureLevel, Logger: o.Logger, Fail: o.Fail,
	}
}

// Store is the state machine's state on disk.
type Store struct {
	opts      Options
	directory *directory.Directory
	active    *active
	recent    *rowcache.Cache // rows of machines as the database has them, for apply alone
	metrics   *metrics

	machines machines
	enders   []*registered // among them, as noticers are
	noticers []*registered
	level    atomic.Uint32 // as of what is applied

	// broken is the error of an entry that could not be applied. Only apply uses it, and
	// application.
	broken      error
	application applyTx
	changes     read.Changes // of the heads of runs
	rows        rowWatches

	applied atomic.Pointer[Applied]
	// advanced is closed, and replaced, whenever applied moves.
	advanced struct {
		sync.Mutex
		ch chan struct{}
	}
}

// Open opens or makes a store. The caller must own Options.Dir.
func Open(opts Options) (*Store, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	machines, err := registerMachines(opts.Machines)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, active: newActive(opts.ActiveBytes), recent: rowcache.New(opts.RowBytes), machines: machines}
	s.enders, s.noticers = those[Ender](machines), those[Noticer](machines)
	s.advanced.ch = make(chan struct{})
	in := opts.directory()
	in.Reached = func() uint64 { return s.applied.Load().Index }
	dir, state, err := directory.Open(in)
	if err != nil {
		return nil, err
	}
	s.directory = dir
	s.level.Store(state.Level)
	s.changes.AddAll()
	s.applied.Store(&state.Applied)
	s.metrics = newMetrics(opts.Registerer, s)
	return s, nil
}

// db is the live database, for apply alone. Others acquire it.
func (s *Store) db() *pebble.DB { return s.directory.Live() }

// Close flushes and closes the store; what reads, Receive and a Seed must have ended. A store that
// is not closed loses nothing: the Raft log has it.
func (s *Store) Close() error {
	s.metrics.unregister(s.opts.Registerer)
	return s.directory.Close()
}

// Applied returns how far the store is.
func (s *Store) Applied() Applied { return *s.applied.Load() }

// Incarnation names the history that the store has now.
func (s *Store) Incarnation() Incarnation { return s.applied.Load().Incarnation }

// publish tells the waiting readers what was applied.
func (s *Store) publish(a *Applied) {
	s.applied.Store(a)
	s.advanced.Lock()
	close(s.advanced.ch)
	s.advanced.ch = make(chan struct{})
	s.advanced.Unlock()
}

// Wait returns as soon as the store has applied an entry after position, or with the context's
// error.
func (s *Store) Wait(ctx context.Context, after Position) error {
	for {
		s.advanced.Lock()
		ch := s.advanced.ch
		s.advanced.Unlock()
		if s.applied.Load().Position() > after {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// MakeDurable flushes until Pebble holds on stable storage everything up to index, and says so only
// after it has read it back from there. Only then may the Raft log drop entries up to index (D2).
func (s *Store) MakeDurable(index uint64) error {
	db, release, err := s.directory.Acquire()
	if err != nil {
		return err
	}
	defer release()
	if err := db.Flush(); err != nil {
		return fmt.Errorf("storage: flush: %w", err)
	}
	a, err := record.ReadApplied(db, &pebble.IterOptions{OnlyReadGuaranteedDurable: true}, s.opts.Cluster)
	if err != nil {
		return err
	}
	if a.Index < index {
		return fmt.Errorf("%w: index %d is, %d is not", ErrNotDurable, a.Index, index)
	}
	return nil
}
