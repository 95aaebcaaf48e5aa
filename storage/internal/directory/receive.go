package directory

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/files"
	"runlog/storage/internal/record"
	"runlog/storage/internal/stream"
)

// ErrOlder means that a checkpoint reaches less far than the store, and was not installed: what a
// store has applied never goes back.
var ErrOlder = errors.New("storage: checkpoint is older than the store")

// copyBytes is how much of a file is in memory while it is received.
const copyBytes = 256 << 10

// Received is a checkpoint that has come whole and that fits, on stable storage in a directory of
// its own. It is no part of the store until Install.
type Received struct {
	State

	d *Directory
	h *handle
}

// Receive reads the stream of a checkpoint to its end, and checks it. Neither what the store holds
// nor what CURRENT says changes, whatever comes. It may be called from anywhere, also while others
// apply and read.
func (d *Directory) Receive(r io.Reader) (_ *Received, err error) {
	in := &stream.Summing{Reader: r}
	m, err := stream.ReadManifest(in)
	if err != nil {
		return nil, err
	}
	if err := d.takes(m); err != nil {
		return nil, err
	}
	number := d.nextNumber()
	defer func() {
		if err != nil {
			err = errors.Join(err, d.opts.FS.RemoveAll(d.path(databaseDir(number))))
		}
	}()
	if err := d.receiveFiles(in, m, d.path(databaseDir(number))); err != nil {
		return nil, err
	}
	return d.candidate(number, promised(m))
}

// candidate opens a database that has come whole, and checks it.
func (d *Directory) candidate(number uint64, promised *record.Applied) (*Received, error) {
	h, err := d.openHandle(number, true)
	if err != nil {
		return nil, err
	}
	received := &Received{d: d, h: h}
	if err := received.inspect(promised); err != nil {
		d.dispose(h)
		return nil, err
	}
	return received, nil
}

// takes refuses a checkpoint that cannot become the store.
func (d *Directory) takes(m *stream.Manifest) error {
	if m.Cluster != d.opts.Cluster {
		return fmt.Errorf("%w: checkpoint of cluster %x, not of %x", record.ErrForeign, m.Cluster, d.opts.Cluster)
	}
	return d.newer(promised(m))
}

// newer refuses a state that would take the store back.
func (d *Directory) newer(a *record.Applied) error {
	if now := d.opts.Reached(); a.Index < now {
		return fmt.Errorf("%w: it reaches to %d, the store to %d", ErrOlder, a.Index, now)
	}
	return nil
}

// promised is how far a manifest says that its checkpoint reaches.
func promised(m *stream.Manifest) *record.Applied {
	a := m.Applied
	return &record.Applied{Index: a.Index, Term: a.Term, RollingHash: a.RollingHash}
}

// receiveFiles writes the files of a stream and puts them on stable storage.
func (d *Directory) receiveFiles(in *stream.Summing, m *stream.Manifest, dir string) error {
	fs := d.opts.FS
	if err := files.MakeDir(fs, dir); err != nil {
		return err
	}
	buf := make([]byte, copyBytes)
	for _, f := range m.Files {
		sum, err := receiveFile(fs, fs.PathJoin(dir, f.Name), in, f.Size, buf)
		if err == nil {
			err = in.Check(sum, f.Name)
		}
		if err == nil {
			err = checkReceived(fs, fs.PathJoin(dir, f.Name))
		}
		if err != nil {
			return err
		}
	}
	if err := in.Check(in.Sum, "the checkpoint"); err != nil {
		return err
	}
	if n, err := io.ReadFull(in, buf[:1]); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more than it said: %w", stream.ErrCheckpoint, err)
	}
	return files.SyncDir(fs, dir)
}

func receiveFile(fs vfs.FS, path string, in *stream.Summing, size uint64, buf []byte) (sum uint32, err error) {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, fmt.Errorf("storage: receive checkpoint: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for size > 0 {
		part := buf[:min(size, uint64(len(buf)))]
		if err := in.Fill(part); err != nil {
			return 0, err
		}
		// first: vfs.File.Write may change what it is given
		sum = crc32.Update(sum, record.Castagnoli, part)
		if _, err := f.Write(part); err != nil {
			return 0, fmt.Errorf("storage: receive checkpoint: %w", err)
		}
		size -= uint64(len(part))
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("storage: receive checkpoint: %w", err)
	}
	return sum, nil
}

// checkReceived refuses a table that is damaged although it came as its sender has it.
func checkReceived(fs vfs.FS, path string) error {
	if err := checkTable(fs, path); err != nil {
		return fmt.Errorf("%w: %s: %w", stream.ErrCheckpoint, fs.PathBase(path), err)
	}
	return nil
}

// inspect compares what came with what was promised.
func (r *Received) inspect(promised *record.Applied) error {
	applied, err := record.ReadApplied(r.h.db, nil, r.d.opts.Cluster)
	if err != nil {
		return err
	}
	if applied.Index != promised.Index || applied.Term != promised.Term || applied.RollingHash != promised.RollingHash {
		return fmt.Errorf("%w: it holds entries up to %d of term %d, rolling hash %x, and promised %d, %d, %x", stream.ErrCheckpoint,
			applied.Index, applied.Term, applied.RollingHash, promised.Index, promised.Term, promised.RollingHash)
	}
	r.Applied = *applied
	r.Level, err = record.ReadLevel(r.h.db, r.d.opts.FeatureLevel)
	return err
}

// Newer returns ErrOlder where the store has applied more than what was received holds.
func (r *Received) Newer() error { return r.d.newer(&r.Applied) }

// Row returns a row of what was received; nil: there is none.
func (r *Received) Row(key []byte) ([]byte, error) { return record.GetRow(r.h.db, key) }

// Install makes what was received the live database. Once CURRENT names it, Install calls show,
// which calls swap once: from then on Acquire returns the new database. The old one goes when its
// last reader has released it.
//
// After an error a restart may find either of the two.
func (r *Received) Install(show func(swap func())) error {
	d := r.d
	// From here on the database's trouble is the store's, so that what it had until now is known.
	r.h.live.Store(true)
	if err := r.h.spoiled.Load(); err != nil {
		return *err
	}
	if err := d.writeCurrent(current{number: r.h.number, installed: r.Applied.Index}); err != nil {
		return err
	}
	d.installed.Store(r.Applied.Index)
	var old *handle
	show(func() { old = d.current.Swap(r.h) })
	old.live.Store(false)
	d.release(old)
	d.retireSeeds()
	d.opts.Logger.Info("a checkpoint was installed", "index", r.Applied.Index, "database", r.h.number)
	return nil
}

// Discard removes what was received. It is called instead of Install, or after ErrOlder.
func (r *Received) Discard() { r.d.dispose(r.h) }

// Installed is the applied index with which the live database came out of an install; 0: it never
// did.
func (d *Directory) Installed() uint64 { return d.installed.Load() }
