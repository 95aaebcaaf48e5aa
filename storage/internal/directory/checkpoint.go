package directory

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/record"
	"runlog/storage/internal/stream"
)

// errEmpty says that nothing was applied yet, so that there is nothing to give away.
var errEmpty = errors.New("storage: the store is empty")

// Checkpoint is a whole state of the store, of the moment when it was made, in hard links to the
// store's files: it costs no copy and stands in the way of no apply. It must be closed.
type Checkpoint struct {
	// Applied is how far it reaches, as read back from it.
	Applied record.Applied
	// Membership of the group at that index.
	Membership record.Membership
	// Database is the number of the database whose files these are. A number names one database of
	// a node forever, and a file's name one file of a database.
	Database uint64

	fs  vfs.FS
	dir string
	// source is the directory of the database that the files are those of; trouble stops its node.
	source  string
	trouble func(error)

	logger   pebble.Logger
	manifest stream.Manifest
	stream   *checkpointReader
	closed   atomic.Bool
}

// Checkpoint makes one of what is applied now, or of a little more.
func (d *Directory) Checkpoint() (_ *Checkpoint, err error) {
	h, err := d.acquire()
	if err != nil {
		return nil, err
	}
	defer d.release(h)
	// Without a write-ahead log a checkpoint has what was flushed, no more (D2).
	if err := h.db.Flush(); err != nil {
		return nil, fmt.Errorf("storage: flush: %w", err)
	}
	c := &Checkpoint{
		fs: d.opts.FS, dir: d.path(checkpointDir(d.nextNumber())), Database: h.number,
		source: d.path(databaseDir(h.number)), trouble: func(err error) { d.trouble(h, err) },
		logger: pebbleLogger{log: d.opts.Logger, fail: func(error) {}},
	}
	if err := h.db.Checkpoint(c.dir); err != nil {
		return nil, fmt.Errorf("storage: checkpoint: %w", err)
	}
	c.manifest.Cluster = d.opts.Cluster
	if err = c.inspect(); err == nil {
		err = c.list()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// inspect reads back from the checkpoint how far it reaches.
func (c *Checkpoint) inspect() (err error) {
	db, err := pebble.Open(c.dir, &pebble.Options{
		FS: c.fs, ReadOnly: true, DisableWAL: true, CacheSize: 1 << 20,
		Logger: c.logger,
		EventListener: &pebble.EventListener{DataCorruption: func(info pebble.DataCorruptionInfo) {
			_ = c.rotten(c.fs.PathBase(info.Path), info.Details)
		}},
	})
	if err != nil {
		return fmt.Errorf("storage: open checkpoint: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	applied, err := record.ReadApplied(db, nil, c.manifest.Cluster)
	if err != nil {
		return err
	}
	if applied.Index == 0 {
		return errEmpty
	}
	c.Applied = *applied
	c.manifest.Applied = stream.Reach{Index: applied.Index, Term: applied.Term, RollingHash: applied.RollingHash}
	c.Membership, err = record.ReadMembership(db)
	return err
}

// list takes down the files, which do not change any more.
func (c *Checkpoint) list() error {
	names, err := c.fs.List(c.dir)
	if err != nil {
		return fmt.Errorf("storage: list checkpoint: %w", err)
	}
	for _, name := range names {
		info, err := c.fs.Stat(c.fs.PathJoin(c.dir, name))
		if err != nil {
			return fmt.Errorf("storage: list checkpoint: %w", err)
		}
		if name == "LOCK" || strings.HasSuffix(name, ".log") && info.Size() == 0 {
			// Pebble makes a log also when it does not write one; one with content does not fit.
			continue
		}
		c.manifest.Files = append(c.manifest.Files, stream.File{Name: name, Size: uint64(info.Size())})
	}
	slices.SortFunc(c.manifest.Files, func(a, b stream.File) int { return strings.Compare(a.Name, b.Name) })
	return c.manifest.Fits()
}

// Size is how many bytes Stream gives.
func (c *Checkpoint) Size() int64 { return c.manifest.Size() }

// Stream gives the checkpoint as Directory.Receive takes it, once. It is not used after Close.
func (c *Checkpoint) Stream() io.Reader {
	c.stream = &checkpointReader{c: c, pending: c.manifest.Bytes()}
	return c.stream
}

// Manifest says what the checkpoint consists of, as Directory.Seed takes it: cluster, applied
// state, and the files with their sizes in bytes, under a checksum (docs/formats.md). It is below
// 21 MiB (maxStreamFiles, maxFileName).
func (c *Checkpoint) Manifest() []byte { return c.manifest.Bytes() }

// ErrNotInCheckpoint means that a checkpoint has no such file, or that the file ends before the
// offset.
var ErrNotInCheckpoint = errors.New("storage: not in the checkpoint")

// ReadFile gives the bytes of one of the manifest's files from an offset on, in pieces of at most
// 256 KiB that are valid until give returns, and returns the CRC32C of the whole file: what lies
// before the offset is read too (D5). It may be called from anywhere, many times at once, and while
// the checkpoint is closed. An error of give ends it and comes back wrapped; others are
// ErrNotInCheckpoint, ErrClosed, or those of the disk.
func (c *Checkpoint) ReadFile(name string, offset uint64, give func([]byte) error) (sum uint32, err error) {
	i, found := c.manifest.Find(name)
	if !found {
		return 0, fmt.Errorf("%w: file %q", ErrNotInCheckpoint, name)
	}
	size := c.manifest.Files[i].Size
	if offset > size {
		return 0, fmt.Errorf("%w: byte %d of the %d of %s", ErrNotInCheckpoint, offset, size, name)
	}
	f, err := c.open(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, copyBytes)
	sum, err = stream.ReadPieces(f, 0, offset, buf, nil)
	if err == nil {
		sum, err = stream.ReadPieces(f, sum, size-offset, buf, give)
	}
	if err != nil {
		return 0, fmt.Errorf("storage: read checkpoint: %s: %w", name, err)
	}
	return sum, nil
}

// open opens one of the files, for all the ways out of the node. A table has been checked then; of
// one that has rotted the node hears as of one that it reads itself (D10).
func (c *Checkpoint) open(name string) (f vfs.File, err error) {
	path := c.fs.PathJoin(c.dir, name)
	if err = checkTable(c.fs, path); err == nil {
		f, err = c.fs.Open(path, vfs.SequentialReadsOption)
	}
	switch {
	case err == nil:
		return f, nil
	case c.closed.Load():
		return nil, ErrClosed
	case pebble.IsCorruptionError(err):
		err = c.rotten(name, err)
	}
	return nil, fmt.Errorf("storage: read checkpoint: %w", err)
}

// rotten tells the node that a file has rotted. It is the store's too, under the same name.
func (c *Checkpoint) rotten(name string, err error) error {
	err = corrupt(c.fs.PathJoin(c.source, name), err)
	c.trouble(err)
	return err
}

// Close removes the checkpoint's files. The store's are others.
func (c *Checkpoint) Close() error {
	c.closed.Store(true)
	var err error
	if c.stream != nil && c.stream.file != nil {
		err = c.stream.file.Close()
		c.stream.file = nil
	}
	if err := errors.Join(err, c.fs.RemoveAll(c.dir)); err != nil {
		return fmt.Errorf("storage: remove checkpoint: %w", err)
	}
	return nil
}

// checkpointReader makes the stream as it is read.
type checkpointReader struct {
	c       *Checkpoint
	pending []byte // comes next
	sum     uint32 // of everything given
	next    int    // of the files
	ended   bool

	file    vfs.File // the one that is being read
	left    uint64   // of it
	fileSum uint32
}

func (r *checkpointReader) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	for n == 0 && err == nil {
		n, err = r.step(p)
	}
	r.sum = crc32.Update(r.sum, record.Castagnoli, p[:n])
	return n, err
}

func (r *checkpointReader) step(p []byte) (int, error) {
	switch {
	case len(r.pending) > 0:
		n := copy(p, r.pending)
		r.pending = r.pending[n:]
		return n, nil
	case r.file != nil:
		return r.readFile(p)
	case r.next < len(r.c.manifest.Files):
		return 0, r.openFile()
	case !r.ended:
		r.ended = true
		r.pending = stream.AppendChecksum(nil, r.sum)
		return 0, nil
	default:
		return 0, io.EOF
	}
}

func (r *checkpointReader) openFile() (err error) {
	f := r.c.manifest.Files[r.next]
	r.next++
	r.left, r.fileSum = f.Size, 0
	r.file, err = r.c.open(f.Name)
	return err
}

func (r *checkpointReader) readFile(p []byte) (int, error) {
	if r.left == 0 {
		r.pending = stream.AppendChecksum(nil, r.fileSum)
		err := r.file.Close()
		r.file = nil
		return 0, err
	}
	n, err := r.file.Read(p[:min(uint64(len(p)), r.left)])
	r.left -= uint64(n)
	r.fileSum = crc32.Update(r.fileSum, record.Castagnoli, p[:n])
	if errors.Is(err, io.EOF) && n > 0 {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("storage: read checkpoint: %s: %d bytes are missing: %w", r.c.manifest.Files[r.next-1].Name, r.left, stream.NoEOF(err))
	}
	return n, err
}
