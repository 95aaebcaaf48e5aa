package outbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// Defaults of Options, and limits.
const (
	// DefaultMaxBytes bounds the live records of an outbox.
	DefaultMaxBytes = 64 << 20

	compactBytes = 1 << 20
	// retryEvery is the shortest time between two attempts to write a new file.
	retryEvery = time.Second
)

var (
	// ErrFull is the cause of a Put that would exceed Options.MaxBytes.
	ErrFull = errors.New("outbox: the outbox is full")
	// ErrTooLarge is the cause of a Put of a request that no server would take.
	ErrTooLarge = errors.New("outbox: the request is too large")
	// ErrClosed is the cause of a Put after Close.
	ErrClosed = errors.New("outbox: the outbox is closed")
)

// Options of an Outbox. The zero value works.
type Options struct {
	// MaxBytes bounds the live records, pending and rejected, in bytes of the file. The file may be
	// twice as large. 0 means DefaultMaxBytes.
	MaxBytes int64
	// Logger gets a warning about damage, and about files that cannot be written. nil: none.
	Logger *slog.Logger

	// For tests.
	files        fileSystem
	now          func() time.Time
	compactBytes int64 // dead bytes that a file may always have
}

// EnsureDefaults returns o with defaults in place of zero values.
func (o Options) EnsureDefaults() Options {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.files == nil {
		o.files = osFiles{}
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.compactBytes == 0 {
		o.compactBytes = compactBytes
	}
	return o
}

// Validate reports every fault of o, which must have its defaults.
func (o Options) Validate() error {
	if o.MaxBytes < 0 {
		return fmt.Errorf("outbox: MaxBytes is %d, want 0 or more", o.MaxBytes)
	}
	return nil
}

// Record is a request that waits for the server.
type Record struct {
	// ID names the record in its outbox. Ids rise with the order of the Puts.
	ID uint64
	// Parked is when the request was put.
	Parked time.Time
	// Request is the request as it was put, with all fields, also those that this version does not
	// know.
	Request *runlogv1.AppendEventsRequest
	// Reason says why the server refused the request for good, and RejectedAt when. Empty and zero:
	// the record is pending.
	Reason     string
	RejectedAt time.Time
}

// Outbox is an open outbox. It is safe for concurrent use.
type Outbox struct {
	opts     Options
	path     string
	lock     io.Closer
	recovery Recovery
	writer   writer
	wake     chan struct{} // the writer has work
	ready    chan struct{}
	stopped  chan struct{} // the writer has returned
	rested   *sync.Cond    // of mu; the writer has nothing to do. For tests.

	mu struct {
		sync.Mutex
		index  *index
		file   *handle
		queue  []*op // for the writer
		queued int64 // bytes of the puts in queue, and of those that the writer has taken
		next   uint64
		busy   bool // the writer has taken a batch
		closed bool
		err    error // of Close
	}
}

// Open opens an outbox, or makes it. Its directory must exist. Open removes the end of a write that
// did not finish, and repairs a damaged file; Recovery says what it found.
//
// The error is a *LockedError if the outbox is open, in this process or in another one. Open does
// not change a file that a newer version has written, or that is no outbox.
func Open(path string, opts Options) (*Outbox, error) {
	opts = opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	path, err := opts.files.Resolve(path)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	for _, own := range []string{newSuffix, lockSuffix} {
		if strings.HasSuffix(path, own) {
			return nil, fmt.Errorf("outbox: open %s: an outbox beside it may overwrite names with %s at the end; choose another name", path, own)
		}
	}
	o := &Outbox{
		opts: opts, path: path,
		wake: make(chan struct{}, 1), ready: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	o.writer.Outbox, o.rested = o, sync.NewCond(&o.mu)
	if o.lock, err = opts.files.Lock(path + lockSuffix); err != nil {
		if errors.Is(err, ErrLocked) {
			return nil, err
		}
		return nil, fmt.Errorf("outbox: lock %s: %w", path+lockSuffix, err)
	}
	if err := o.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("outbox: open %s: %w", path, err), o.retire(), o.lock.Close())
	}
	if r := o.recovery; r.IsDamaged() {
		opts.Logger.Warn("outbox is damaged", "path", path, "lost", r.Lost, "copy", r.Copy, "damage", r.String())
	} else if r.Torn > 0 {
		opts.Logger.Info("removed an unfinished write from the outbox", "path", path, "bytes", r.Torn)
	}
	if o.mu.index.count[pending] > 0 {
		o.ready <- struct{}{}
	}
	go o.writer.run()
	return o, nil
}

// load reads the file, and repairs or makes it.
func (o *Outbox) load() error {
	// A crash may have left it.
	if err := o.opts.files.Remove(o.temporary()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := o.opts.files.Open(o.path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		o.mu.index, o.mu.next = newIndex(), 1
		return o.writer.rewrite()
	}
	if err != nil {
		return err
	}
	o.mu.file = &handle{file: f, refs: 1}
	size, err := f.Size()
	if err != nil {
		return err
	}
	found, err := scanFile(f, size)
	if err != nil {
		return err
	}
	o.mu.index, o.mu.next, o.recovery, o.writer.end = found.index, found.next, found.recovery, found.end
	switch {
	case o.recovery.IsDamaged():
		if size > 0 {
			if err := o.copyDamaged(f, size); err != nil {
				return err
			}
		}
		return o.writer.rewrite()
	case o.recovery.Torn > 0:
		if err := f.Truncate(o.writer.end); err != nil {
			return err
		}
	}
	// A killed process may have written without a sync, or without a sync of the directory. What is
	// sent from here on must not come back from an older state of the file.
	if err := f.Sync(); err != nil {
		return err
	}
	return o.opts.files.SyncDir(filepath.Dir(o.path))
}

// Suffixes of the other files of an outbox.
const (
	newSuffix  = ".new"
	lockSuffix = ".lock"
)

// temporary is the name of a file before it gets its own.
func (o *Outbox) temporary() string { return o.path + newSuffix }

// Recovery says what Open found to be damaged.
func (o *Outbox) Recovery() Recovery { return o.recovery }

// Path returns the path of the file, without symbolic links.
func (o *Outbox) Path() string { return o.path }

// Ready returns a channel that receives a value when records are pending: after Open, and after
// Puts. Values do not pile up. Close closes the channel.
func (o *Outbox) Ready() <-chan struct{} { return o.ready }

// Stats are the sizes of an outbox.
type Stats struct {
	Pending, Rejected int
	// Bytes of the live records, and their limit.
	Bytes, MaxBytes int64
}

// Stats returns the sizes of the outbox.
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Stats{
		Pending: o.mu.index.count[pending], Rejected: o.mu.index.count[rejected],
		Bytes: o.mu.index.bytes + o.mu.queued, MaxBytes: o.opts.MaxBytes,
	}
}

// Close finishes the Puts that have begun, makes every Done and Reject durable, and unlocks the
// outbox. The error is about the latter: some records may be sent again.
func (o *Outbox) Close() error {
	o.mu.Lock()
	first := !o.mu.closed
	o.mu.closed = true
	o.mu.Unlock()
	if first {
		o.signal()
	}
	<-o.stopped
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.err
}

// handle is an open file. Readers of the file it had before share it with the writer.
type handle struct {
	file
	refs int // guarded by Outbox.mu
}

// acquire returns the file for a reader. The caller holds mu.
func (o *Outbox) acquireLocked() *handle {
	o.mu.file.refs++
	return o.mu.file
}

// release gives a file back.
func (o *Outbox) release(h *handle) error {
	o.mu.Lock()
	h.refs--
	last := h.refs == 0
	o.mu.Unlock()
	if !last {
		return nil
	}
	return h.Close()
}

// retire gives back the file that the outbox writes to.
func (o *Outbox) retire() error {
	o.mu.Lock()
	h := o.mu.file
	o.mu.file = nil
	o.mu.Unlock()
	if h == nil {
		return nil
	}
	return o.release(h)
}
