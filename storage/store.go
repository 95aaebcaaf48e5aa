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
	// ChainBytes bounds the memory of the chain digests of the records that were applied last.
	// Default: 4 MiB, for some 100,000 records.
	ChainBytes int
	// Machines are the parts of the state machine other than the core. A store that applies the log
	// needs all of them that the log has operations of.
	Machines []Machine
	// FeatureLevel is the highest feature level that the build supports. Default: CoreLevel.
	FeatureLevel uint32
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a registry of its own.
	Registerer prometheus.Registerer
	// Fail is called with an error of the background after which the store must not be used (D10).
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
	if o.ChainBytes == 0 {
		o.ChainBytes = 4 << 20
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
		Dir: o.Dir, FS: o.FS, Cluster: o.Cluster, CacheBytes: o.CacheBytes, MemTableBytes: o.MemTableBytes,
		OpenFiles: o.OpenFiles, FeatureLevel: o.FeatureLevel, Logger: o.Logger, Fail: o.Fail,
	}
}

// Store is the state machine's state on disk.
//
// One goroutine at a time applies: it calls Apply, ApplyMembership and Received.Install. Readers
// are any number of other goroutines. They acquire the live database from directory, and see of it
// what a batch has made visible as a whole. An install may replace that database at any time: a
// reader stays with the one that it has acquired.
//
// What is visible is not durable. Pebble has no write-ahead log here, so a batch is in memory only
// until Pebble flushes it. Each batch has the applied state of its entry, and Pebble flushes
// batches in their order. So what a crash leaves is the state at some earlier index, and names that
// index: the Raft log has the entries behind it, which it drops only after MakeDurable (D2).
type Store struct {
	// Set by Open, and never again.

	opts      Options
	machines  machines
	metrics   *metrics
	directory *directory.Directory // has locks of its own
	// enders and noticers are those machines that are one, in the order of their kinds: every
	// replica calls them in the same order.
	enders, noticers []*registered

	// Used by the goroutine that applies alone, without a lock.

	// active has the runs as the commands before have left them. While a proposal is applied it is
	// ahead of the database, by what that proposal has changed so far. Install replaces it.
	active *active
	// recent has rows of machines as the database shows them. It learns of the rows that a proposal
	// has written once they are visible. Install replaces it.
	recent *rowcache.Cache
	// packing has the runs that are to be packed. Install empties it, so that they are read again.
	packing packing
	// application is the proposal that is being applied. Between two, only its memory counts.
	application applyTx
	// keyer has the key of the command that was applied last.
	keyer record.Keyer
	// broken is the first error of an entry that could not be applied, or of an install. After it,
	// memory may be ahead of the database for good, so that nothing is applied any more.
	broken error

	// Written by that goroutine, once what they say is visible, and read by all.

	// level is the feature level. It never falls, so that CheckLevel may read an older one: it then
	// refuses what would be taken a moment later.
	level atomic.Uint32
	// applied never goes back. Invariant: the live database shows all that it says. It may show
	// more, for a moment.
	applied atomic.Pointer[Applied]
	// advanced wakes the goroutines in Wait. publish stores applied first, and then closes ch and
	// makes another. A goroutine takes ch first, and then looks at applied. So it sees the new
	// state, or has the channel that is about to be closed.
	advanced struct {
		sync.Mutex
		ch chan struct{}
	}

	// chains has the chain digests of the newest records. It has a lock of its own.
	chains *chains
	// changes has the runs whose heads have changed since the last call of Heads. Its lock is held
	// while a batch becomes visible, and while Heads takes a snapshot: so the runs that Heads
	// takes are those that changed up to its snapshot.
	changes read.Changes
	// rows are the callers of WatchRows. They have a lock of their own. The goroutine that applies
	// calls them last, when readers can see what they are called with.
	rows rowWatches
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
	s := &Store{
		opts: opts, machines: machines, active: newActive(opts.ActiveBytes), recent: rowcache.New(opts.RowBytes),
		chains: newChains(opts.ChainBytes),
	}
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

// db is the live database, for the goroutine that applies: it needs no reference, because only it
// can replace the database. Others acquire it.
func (s *Store) db() *pebble.DB { return s.directory.Live() }

// Close flushes and closes the store; what reads, Receive and a Seed must have ended. A store that
// is not closed loses nothing: the Raft log has it.
func (s *Store) Close() error {
	s.metrics.unregister(s.opts.Registerer)
	return s.directory.Close()
}

// Applied returns how far the store is.
func (s *Store) Applied() Applied { return *s.applied.Load() }

// Keyed reports whether the cluster has a key for receipts. It then has it forever: an append that
// is encoded from now on need not bring one along (Append.Keyed).
func (s *Store) Keyed() bool { return s.applied.Load().ReceiptKey != record.ReceiptKey{} }

// Incarnation names the history that the store has now.
func (s *Store) Incarnation() Incarnation { return s.applied.Load().Incarnation }

// publish moves applied, and wakes the goroutines in Wait. What it says is visible by then.
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

// MakeDurable flushes until Pebble has everything up to index on stable storage, and returns nil
// only after it has read the applied state back from there. Only then may the Raft log drop entries
// up to index (D2). Any goroutine may call it, also while another one applies: Pebble then flushes
// a little more.
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
