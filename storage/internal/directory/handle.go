package directory

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"

	"runlog/storage/internal/files"
)

// handle is one database under the store. A reader holds a reference while it reads, so that a
// database which an install replaced lives until its last reader is done, and then goes, files and
// all (D5). Apply needs none: its own caller is the one that replaces the database.
type handle struct {
	db     *pebble.DB
	number uint64
	// refs counts the readers, and the store while the database is its live one. At 0 it stays at
	// 0.
	refs atomic.Int64
	// live says that the store must not be used after trouble with this database.
	live atomic.Bool
	// spoiled is the first trouble that a database had which was not live.
	spoiled atomic.Pointer[error]

	closing sync.Once
	closed  error
}

// handles are the databases that are open.
type handles struct {
	sync.Mutex
	open   map[*handle]struct{}
	closed bool
	// retiring are the goroutines that close what was replaced; none begins once closed is set.
	retiring sync.WaitGroup
}

// openHandle opens or makes a database. A candidate is none of the store's yet.
func (d *Directory) openHandle(number uint64, candidate bool) (h *handle, err error) {
	h = &handle{number: number}
	h.refs.Store(1)
	h.live.Store(!candidate)
	defer func() {
		// Pebble drops on some errors while it opens by Fatalf. A candidate's are no reason to
		// stop.
		if p := recover(); p != nil {
			fatal, ours := p.(*fatalError)
			if !candidate || !ours {
				panic(p)
			}
			h, err = nil, fatal
		}
	}()
	dir := d.path(databaseDir(number))
	if h.db, err = pebble.Open(dir, d.pebbleOptions(h)); err != nil {
		if disk := syscall.Errno(0); !errors.As(err, &disk) || disk == syscall.ENOENT {
			err = files.Damage(fmt.Errorf("a file is missing or damaged: %w", err))
		}
		return nil, fmt.Errorf("storage: open %s: %w", dir, err)
	}
	d.handles.Lock()
	d.handles.open[h] = struct{}{}
	d.handles.Unlock()
	return h, nil
}

// acquire returns the live database, for the caller to release.
func (d *Directory) acquire() (*handle, error) {
	for {
		h := d.current.Load()
		if h == nil {
			return nil, ErrClosed
		}
		if n := h.refs.Load(); n > 0 && h.refs.CompareAndSwap(n, n+1) {
			return h, nil
		}
	}
}

// release gives a reference back. The last one of a database that was replaced closes and removes
// it, elsewhere: that waits for compactions under way.
func (d *Directory) release(h *handle) {
	if h.refs.Add(-1) > 0 {
		return
	}
	d.handles.Lock()
	defer d.handles.Unlock()
	if !d.handles.closed {
		d.handles.retiring.Go(func() { d.dispose(h) })
	}
}

// dispose closes a database that is not live and removes its files. What it cannot remove goes when
// the store is opened again.
func (d *Directory) dispose(h *handle) {
	err := h.close()
	d.handles.Lock()
	delete(d.handles.open, h)
	d.handles.Unlock()
	if err = errors.Join(err, d.opts.FS.RemoveAll(d.path(databaseDir(h.number)))); err != nil {
		d.opts.Logger.Warn("a database that is not used any more was not removed", "number", h.number, "err", err)
	}
}

func (h *handle) close() error {
	h.closing.Do(func() { h.closed = h.db.Close() })
	return h.closed
}

// closeHandles closes every database, also one that a reader still has.
func (d *Directory) closeHandles() (err error) {
	d.handles.Lock()
	d.handles.closed = true
	d.handles.Unlock()
	d.handles.retiring.Wait()
	for h := range d.handles.open {
		err = errors.Join(err, h.close())
	}
	return err
}

// Live is the live database, for the caller of Received.Install alone. Others acquire it.
func (d *Directory) Live() *pebble.DB { return d.current.Load().db }

// Acquire returns the live database and what gives it back: it lives until then at least. After
// Close it returns ErrClosed.
func (d *Directory) Acquire() (db *pebble.DB, release func(), err error) {
	h, err := d.acquire()
	if err != nil {
		return nil, nil, err
	}
	return h.db, func() { d.release(h) }, nil
}

// trouble is an error after which a database must not be used (D10).
func (d *Directory) trouble(h *handle, err error) {
	if !h.live.Load() {
		h.spoiled.CompareAndSwap(nil, &err)
		d.opts.Logger.Warn("a database that is not live has failed", "number", h.number, "err", err)
	}
	// Looked at again: an install may have made it live without having seen that it is spoiled.
	if h.live.Load() {
		d.opts.Fail(err)
	}
}

// format is the Pebble format of the store, pinned (D6): a newer one is a decision with an ADR.
const format = pebble.FormatValueSeparation

// MaxFileBytes bounds Pebble's files. A file has one bloom filter, a seventieth of its size where
// it holds receipts, and a question about a key that memory does not know reads all of it.
const MaxFileBytes = 16 << 20

// pebbleOptions: no write-ahead log, because the Raft log is it (D2); no compression, because
// chunks come compressed and everything else is digests (D6); bloom filters for questions about new
// runs; one block cache for all databases (D12).
func (d *Directory) pebbleOptions(h *handle) *pebble.Options {
	fail := func(err error) { d.trouble(h, err) }
	o := &pebble.Options{
		FS:                          files.WithMarkers(d.opts.FS),
		FormatMajorVersion:          format,
		DisableWAL:                  true,
		Cache:                       d.cache,
		MemTableSize:                d.opts.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                d.opts.OpenFiles,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		Logger:                      pebbleLogger{log: d.opts.Logger, fail: fail},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { fail(fmt.Errorf("storage: background: %w", err)) },
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				// String has a stack trace
				fail(corrupt(info.Path, info.Details))
			},
			WriteStallBegin: func(i pebble.WriteStallBeginInfo) { d.opts.Logger.Warn("writes stall", "reason", i.Reason) },
			WriteStallEnd:   func() { d.opts.Logger.Info("writes go on") },
		},
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.TargetFileSizes[i] = min(int64(2<<20)<<i, MaxFileBytes)
	}
	return o
}

// TableOptions returns the options of tables that the live database is to take over into its last
// level.
func (d *Directory) TableOptions() sstable.WriterOptions {
	o := d.pebbleOptions(d.current.Load())
	o.EnsureDefaults()
	return o.MakeWriterOptions(len(o.Levels)-1, format.MaxTableFormat())
}

// fatalError is what Pebble said when it could not continue.
type fatalError struct{ text string }

func (e *fatalError) Error() string { return e.text }

// pebbleLogger hands Pebble's log on. Pebble continues as if all were well when Fatalf returns, so
// it must not.
type pebbleLogger struct {
	log  *slog.Logger
	fail func(error)
}

var _ pebble.Logger = pebbleLogger{}

func (l pebbleLogger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "msg", lazyText{format, args})
}
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "msg", lazyText{format, args})
}
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := &fatalError{fmt.Sprintf("storage: pebble: "+format, args...)}
	l.fail(err)
	panic(err)
}

// lazyText is formatted only when a handler wants it.
type lazyText struct {
	format string
	args   []any
}

func (t lazyText) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf(t.format, t.args...)) }
