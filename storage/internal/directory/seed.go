package directory

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/files"
	"runlog/storage/internal/record"
	"runlog/storage/internal/stream"
)

var (
	// ErrChecksum means that a file of a seed was not what its sender has, or is damaged, and is
	// gone; it is to be pulled again.
	ErrChecksum = errors.New("storage: a file came with other bytes than were sent")
	// ErrNoRoom means that the disk has less room than a checkpoint still needs.
	ErrNoRoom = errors.New("storage: the disk has no room for the checkpoint")
	// ErrSeeding means that the store has a Seed already.
	ErrSeeding = errors.New("storage: another seed is under way")

	errUnfinished = errors.New("storage: the seed has not come whole")
	errSeedOver   = errors.New("storage: the seed is over")
)

// Seed is a checkpoint of another node that comes file by file, and continues where it was cut,
// also in another process (D5). One goroutine uses it:
//
//	Directory.Seed ──► Next ──► Write … ──► EndFile ──┐──► Finish ──► Received.Install
//	                    ▲─────────────────────────────┘
//
// A file is believed for one reason only: the bytes that are read here have the sum that the sender
// has just worked out from its own. So what an earlier attempt left is asked for once more, from
// its end on, which costs a reading on either side but nothing on the way; and whatever a crash, a
// disk or a sender with the same file numbers made of it, it is found out, and pulled again. For
// the same reason nothing has to be noted down on the way.
type Seed struct {
	d   *Directory
	m   *stream.Manifest
	dir string

	had   []uint64 // how many bytes there are of each of the manifest's files
	have  uint64   // the sum of had
	total uint64   // of the sizes
	next  int      // the files before it are as the sender has them, and on stable storage

	file vfs.File // the one at next, from its first byte on; nil before
	sum  uint32   // of what there is of it
	err  error    // after which only Close and Discard are of use
	over bool
}

// Seed begins to take in the checkpoint that a manifest describes, or continues with it.
// storage.Store.Seed says what origin is, and what it keeps of an earlier attempt. The Seed must be
// closed, and the directory stay open until then.
func (d *Directory) Seed(origin string, manifest []byte) (_ *Seed, err error) {
	in := bytes.NewReader(manifest)
	m, err := stream.ReadManifest(&stream.Summing{Reader: in})
	if err != nil {
		return nil, err
	}
	if in.Len() > 0 {
		return nil, fmt.Errorf("%w: %d bytes after its manifest", stream.ErrCheckpoint, in.Len())
	}
	if err := d.takes(m); err != nil {
		return nil, err
	}
	if !d.seeding.CompareAndSwap(false, true) {
		return nil, ErrSeeding
	}
	defer func() {
		if err != nil {
			d.seeding.Store(false)
		}
	}()
	h, err := d.acquire()
	if err != nil {
		return nil, err
	}
	name := seedDir(h.number, origin)
	d.release(h)
	if err := d.removeSeeds(func(other string) bool { return other != name }); err != nil {
		return nil, err
	}
	seed := &Seed{d: d, m: m, dir: d.path(name), had: make([]uint64, len(m.Files)), total: m.Total()}
	if err := files.MakeDir(d.opts.FS, seed.dir); err != nil {
		return nil, err
	}
	if err := errors.Join(seed.keep(), seed.fits()); err != nil {
		return nil, err
	}
	return seed, nil
}

// keep counts what an earlier attempt left that can be gone on with, and removes the rest.
func (s *Seed) keep() error {
	fs := s.d.opts.FS
	names, err := fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("storage: list seed: %w", err)
	}
	for _, name := range names {
		i, found := s.m.Find(name)
		if found && (strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")) {
			info, err := fs.Stat(fs.PathJoin(s.dir, name))
			if err != nil {
				return fmt.Errorf("storage: look at seed: %w", err)
			}
			if n := uint64(info.Size()); n <= s.m.Files[i].Size {
				s.had[i] = n
				s.have += n
				continue
			}
		}
		if err := fs.RemoveAll(fs.PathJoin(s.dir, name)); err != nil {
			return fmt.Errorf("storage: remove from seed: %w", err)
		}
	}
	return nil
}

// fits refuses a checkpoint that the disk has no room for before the first byte is pulled.
func (s *Seed) fits() error {
	usage, err := s.d.opts.FS.GetDiskUsage(s.dir)
	if needed := s.total - s.have; err == nil && needed > usage.AvailBytes {
		return fmt.Errorf("%w: %d bytes are to come, %d are free", ErrNoRoom, needed, usage.AvailBytes)
	}
	return nil // Where a file system does not tell, a write will.
}

// Applied is how far the checkpoint says that it reaches: index, term and rolling hash.
func (s *Seed) Applied() record.Applied { return *promised(s.m) }

// Progress returns how many bytes of the files are there, and how many there will be. A file that
// has to be pulled again is taken off.
func (s *Seed) Progress() (have, total uint64) { return s.have, s.total }

// Next names the file to be pulled, and the offset in bytes to pull it from, until EndFile has
// taken it; ok is false when there is none left. The offset is the file's size where there is
// nothing to do but to compare.
func (s *Seed) Next() (name string, offset uint64, ok bool) {
	if s.next == len(s.m.Files) {
		return "", 0, false
	}
	return s.m.Files[s.next].Name, s.had[s.next], true
}

// Write takes the next bytes of the file that Next names, any number of them, and may change p.
// After ErrCheckpoint, which says that they are too many, the seed is as before; any other error is
// of the disk, and ends the seed: close it, and begin again.
func (s *Seed) Write(p []byte) error {
	f, err := s.begin()
	if err != nil {
		return err
	}
	if left := f.Size - s.had[s.next]; uint64(len(p)) > left {
		return fmt.Errorf("%w: %d bytes of %s, which lacks %d", stream.ErrCheckpoint, len(p), f.Name, left)
	}
	// Before the write: vfs.File.Write may change what it is given.
	sum := crc32.Update(s.sum, record.Castagnoli, p)
	if _, err := s.file.Write(p); err != nil {
		return s.broke(f.Name, err)
	}
	s.sum = sum
	s.had[s.next] += uint64(len(p))
	s.have += uint64(len(p))
	return nil
}

// EndFile compares the file that Next names, whole, with the CRC32C that the sender has of it, and
// a table with its own checksums too. Then it is on stable storage, and Next names another. After
// ErrChecksum the file is gone, and Next names it again, from 0; after ErrCheckpoint, which says
// that bytes are missing, the seed is as before; any other error is as one of Write.
func (s *Seed) EndFile(sum uint32) error {
	f, err := s.begin()
	if err != nil {
		return err
	}
	if s.had[s.next] < f.Size {
		return fmt.Errorf("%w: %s ends after %d of %d bytes", stream.ErrCheckpoint, f.Name, s.had[s.next], f.Size)
	}
	// Synced also where the file was here: it may not have been.
	fs, file := s.d.opts.FS, s.file
	s.file = nil
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return s.broke(f.Name, err)
	}
	if s.sum != sum {
		return s.remove(f.Name, fmt.Errorf("its checksum is %08x, its sender has %08x", s.sum, sum))
	}
	switch err := checkTable(fs, fs.PathJoin(s.dir, f.Name)); {
	case pebble.IsCorruptionError(err):
		return s.remove(f.Name, err)
	case err != nil:
		return s.broke(f.Name, err)
	}
	if err := files.SyncDir(fs, s.dir); err != nil {
		return s.broke(f.Name, err)
	}
	s.next++
	return nil
}

// remove removes the file that Next names, to be pulled again.
func (s *Seed) remove(name string, why error) error {
	if err := s.d.opts.FS.Remove(s.d.opts.FS.PathJoin(s.dir, name)); err != nil {
		return s.broke(name, err)
	}
	s.have -= s.had[s.next]
	s.had[s.next] = 0
	return fmt.Errorf("%w: %s: %w", ErrChecksum, name, why)
}

// begin returns the file at next, open at its end, with the sum of what is there of it.
func (s *Seed) begin() (*stream.File, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.next == len(s.m.Files):
		return nil, fmt.Errorf("%w: more than its files", stream.ErrCheckpoint)
	}
	f := &s.m.Files[s.next]
	if s.file != nil {
		return f, nil
	}
	fs, had := s.d.opts.FS, s.had[s.next]
	path := fs.PathJoin(s.dir, f.Name)
	var err error
	if had == 0 {
		s.file, err = fs.Create(path, vfs.WriteCategoryUnspecified)
	} else {
		s.file, err = fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified, vfs.SequentialReadsOption)
	}
	if err != nil {
		s.file = nil
		return nil, s.broke(f.Name, err)
	}
	if s.sum, err = stream.ReadPieces(s.file, 0, had, make([]byte, copyBytes), nil); err != nil {
		return nil, s.broke(f.Name, err)
	}
	return f, nil
}

// broke keeps an error of the disk, after which a file may hold anything.
func (s *Seed) broke(name string, err error) error {
	s.err = fmt.Errorf("storage: seed %s: %w", name, err)
	return s.err
}

// Finish turns the seed into a database, once it has come whole, and checks it as Directory.Receive
// does. The seed is over then, and what has come is gone unless it is installed. After ErrOlder,
// which says that the store has got ahead meanwhile, and where files are missing, the seed is as
// before.
func (s *Seed) Finish() (*Received, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.next < len(s.m.Files) {
		return nil, fmt.Errorf("%w: %d of %d files", errUnfinished, s.next, len(s.m.Files))
	}
	if err := s.d.newer(promised(s.m)); err != nil {
		return nil, err
	}
	fs, number := s.d.opts.FS, s.d.nextNumber()
	dir := s.d.path(databaseDir(number))
	err := files.SyncDir(fs, s.dir)
	if err == nil {
		err = fs.Rename(s.dir, dir)
	}
	if err != nil {
		return nil, s.broke("directory", err)
	}
	// Synced first: CURRENT must not come to name what a crash calls a seed again.
	var received *Received
	if err = files.SyncDir(fs, s.d.opts.Dir); err == nil {
		received, err = s.d.candidate(number, promised(s.m))
	}
	if err != nil {
		err = errors.Join(err, fs.RemoveAll(dir))
	}
	return received, errors.Join(err, s.Close())
}

// Close ends the seed and keeps what has come, for another to continue with. Closing it again does
// nothing.
func (s *Seed) Close() (err error) {
	if s.over {
		return nil
	}
	if s.over = true; s.file != nil {
		err = s.file.Close()
	}
	s.err = errSeedOver
	s.d.seeding.Store(false)
	if err != nil {
		return fmt.Errorf("storage: close seed: %w", err)
	}
	return nil
}

// Discard ends the seed and removes what has come. On a seed that is over it does nothing.
func (s *Seed) Discard() error {
	if s.over {
		return nil
	}
	// Removed first: once it is closed, another may begin.
	if err := errors.Join(s.d.opts.FS.RemoveAll(s.dir), s.Close()); err != nil {
		return fmt.Errorf("storage: remove seed: %w", err)
	}
	return nil
}
