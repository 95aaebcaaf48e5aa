package storage

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

var (
	// ErrOlder means that a checkpoint reaches less far than the store, and was not installed: what
	// a store has applied never goes back.
	ErrOlder = errors.New("storage: checkpoint is older than the store")

	errDiverged = errors.New("storage: the store and a checkpoint of its cluster have diverged")
)

// copyBytes is how much of a file is in memory while it is received.
const copyBytes = 256 << 10

// Received is a checkpoint that has come whole and that fits, on stable storage in a directory of
// its own. It is no part of the store until Install.
type Received struct {
	// Applied is how far it reaches.
	Applied Applied

	s     *Store
	h     *handle
	level uint32
}

// Receive reads the stream of a checkpoint to its end, and checks it. Neither what the store holds
// nor what CURRENT says changes, whatever comes. It may be called from anywhere, also while others
// apply and read.
func (s *Store) Receive(r io.Reader) (_ *Received, err error) {
	in := &stream.Summing{Reader: r}
	m, err := stream.ReadManifest(in)
	if err != nil {
		return nil, err
	}
	if err := s.takes(m); err != nil {
		return nil, err
	}
	number := s.nextNumber()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.opts.FS.RemoveAll(s.path(databaseDir(number))))
		}
	}()
	if err := s.receiveFiles(in, m, s.path(databaseDir(number))); err != nil {
		return nil, err
	}
	return s.candidate(number, promised(m))
}

// candidate opens a database that has come whole, and checks it.
func (s *Store) candidate(number uint64, promised *Applied) (*Received, error) {
	h, err := s.openHandle(number, true)
	if err != nil {
		return nil, err
	}
	received := &Received{s: s, h: h}
	if err := received.inspect(promised); err != nil {
		s.dispose(h)
		return nil, err
	}
	return received, nil
}

// takes refuses a checkpoint that cannot become the store.
func (s *Store) takes(m *stream.Manifest) error {
	if m.Cluster != s.opts.Cluster {
		return fmt.Errorf("%w: checkpoint of cluster %x, not of %x", ErrForeign, m.Cluster, s.opts.Cluster)
	}
	return s.newer(promised(m))
}

// newer refuses a state that would take the store back.
func (s *Store) newer(a *Applied) error {
	now := s.applied.Load()
	if a.Index < now.Index {
		return fmt.Errorf("%w: it reaches to %d, the store to %d", ErrOlder, a.Index, now.Index)
	}
	return nil
}

// promised is how far a manifest says that its checkpoint reaches.
func promised(m *stream.Manifest) *Applied {
	a := m.Applied
	return &Applied{Index: a.Index, Term: a.Term, RollingHash: a.RollingHash}
}

// receiveFiles writes the files of a stream and puts them on stable storage.
func (s *Store) receiveFiles(in *stream.Summing, m *stream.Manifest, dir string) error {
	fs := s.opts.FS
	if err := files.MakeDir(fs, dir); err != nil {
		return err
	}
	buf := make([]byte, copyBytes)
	for _, f := range m.Files {
		sum, err := receiveFile(fs, fs.PathJoin(dir, f.Name), in, f.Size, buf)
		if err == nil {
			err = in.Check(sum, f.Name)
		}
		if err != nil {
			return err
		}
	}
	if err := in.Check(in.Sum, "the checkpoint"); err != nil {
		return err
	}
	if n, err := io.ReadFull(in, buf[:1]); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: more than it said: %w", ErrCheckpoint, err)
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

// inspect compares what came with what was promised.
func (r *Received) inspect(promised *Applied) error {
	applied, err := record.ReadApplied(r.h.db, nil, r.s.opts.Cluster)
	if err != nil {
		return err
	}
	if applied.Index != promised.Index || applied.Term != promised.Term || applied.RollingHash != promised.RollingHash {
		return fmt.Errorf("%w: it holds entries up to %d of term %d, rolling hash %x, and promised %d, %d, %x", ErrCheckpoint,
			applied.Index, applied.Term, applied.RollingHash, promised.Index, promised.Term, promised.RollingHash)
	}
	r.Applied = *applied
	r.level, err = record.ReadLevel(r.h.db, r.s.opts.FeatureLevel)
	return err
}

// Install makes what was received the store. Readers that have begun end on what they began with;
// all others, and Apply, go on with the new state.
//
// It is called by whoever calls Apply. After ErrOlder the store is as it was, and the caller
// discards what was received; any other error means that this node cannot go on, as one of Apply
// does (D10).
func (r *Received) Install() error {
	s := r.s
	if s.broken != nil {
		return s.broken
	}
	if err := s.newer(&r.Applied); err != nil {
		return err
	}
	if err := r.install(); err != nil {
		s.broken = fmt.Errorf("install up to entry %d: %w", r.Applied.Index, err)
		return s.broken
	}
	return nil
}

func (r *Received) install() error {
	s := r.s
	if now := s.applied.Load(); now.Index == r.Applied.Index && now.RollingHash != r.Applied.RollingHash {
		return fmt.Errorf("%w: rolling hash %x and %x at index %d", errDiverged, now.RollingHash, r.Applied.RollingHash, now.Index)
	}
	// From here on the database's trouble is the store's, so that what it had until now is known.
	r.h.live.Store(true)
	if err := r.h.spoiled.Load(); err != nil {
		return *err
	}
	if err := s.writeCurrent(current{number: r.h.number, installed: r.Applied.Index}); err != nil {
		return err
	}
	s.installed.Store(r.Applied.Index)
	s.active = newActive(s.opts.ActiveBytes)
	s.changes.Lock()
	old := s.current.Swap(r.h)
	s.changes.AddAllLocked()
	s.changes.Unlock()
	s.level.Store(r.level)
	old.live.Store(false)
	s.release(old)
	s.retireSeeds()
	s.opts.Logger.Info("a checkpoint was installed", "index", r.Applied.Index, "database", r.h.number)
	// Whoever sees the new applied state finds the new database.
	s.publish(&r.Applied)
	return nil
}

// Discard removes what was received. It is called instead of Install, or after ErrOlder.
func (r *Received) Discard() { r.s.dispose(r.h) }

// Install receives a checkpoint and makes it the store; see Receive and Received.Install.
func (s *Store) Install(r io.Reader) error {
	received, err := s.Receive(r)
	if err != nil {
		return err
	}
	if err = received.Install(); errors.Is(err, ErrOlder) {
		received.Discard()
	}
	return err
}

// Installed is the applied index with which the store's database came out of an install; 0: it
// never did.
func (s *Store) Installed() uint64 { return s.installed.Load() }
