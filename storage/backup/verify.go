package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
	"runlog/proto/contract"
)

const (
	// maxReading is how many files are read at a time: a hash is a core's work.
	maxReading = 4
	// maxFaults bounds the damaged files that are listed.
	maxFaults = 5
)

// Verify reads all files of a backup and compares them with its manifest. Errors: ErrMissing and
// ErrDamaged for each of the first faulty files, the context's error, and those of the disk.
// progress, if not nil, is called by several goroutines, one at a time.
func (r *Repository) Verify(ctx context.Context, m *Manifest, progress func(Progress)) error {
	return r.eachFile(m.Files, progress, func(f proof.BackupFile, tell func(uint64)) error { return r.readStored(ctx, f, nil, tell) })
}

// VerifyAll is Verify of several backups, and returns an error, or nil, for each of them in their
// order. A file is read once, however many have it.
func (r *Repository) VerifyAll(ctx context.Context, all []*Manifest, progress func(Progress)) []error {
	type content struct {
		sum  contract.Digest
		size uint64
	}
	var files []proof.BackupFile
	is := map[content]error{}
	for _, m := range all {
		for _, f := range m.Files {
			if _, twice := is[content{f.SHA256, f.Size}]; !twice {
				is[content{f.SHA256, f.Size}] = nil
				files = append(files, f)
			}
		}
	}
	var mu sync.Mutex
	_ = r.eachFile(files, progress, func(f proof.BackupFile, tell func(uint64)) error {
		err := r.readStored(ctx, f, nil, tell)
		mu.Lock()
		defer mu.Unlock()
		is[content{f.SHA256, f.Size}] = err
		return nil // each backup reports its own
	})
	errs := make([]error, len(all))
	for i, m := range all {
		var found faults
		for _, f := range m.Files {
			found.add(is[content{f.SHA256, f.Size}])
		}
		errs[i] = found.err()
	}
	return errs
}

// faults are errors of many files, of which the first few are kept.
type faults struct {
	first []error
	more  int
}

func (f *faults) add(err error) {
	switch {
	// reported once
	case err == nil, errors.Is(err, context.Canceled) && errors.Is(errors.Join(f.first...), context.Canceled):
	case len(f.first) < maxFaults:
		f.first = append(f.first, err)
	default:
		f.more++
	}
}

func (f *faults) err() error {
	if f.more > 0 {
		return errors.Join(append(f.first, fmt.Errorf("and %d further files", f.more))...)
	}
	return errors.Join(f.first...)
}

// Copy copies the files of a backup, under their names, into an empty directory, and syncs all. It
// compares them with the manifest while it reads. It writes nothing if the disk has no room.
// Errors: those of Verify, and ErrNoRoom.
func (r *Repository) Copy(ctx context.Context, m *Manifest, disk vfs.FS, dir string, progress func(Progress)) error {
	if err := room(disk, dir, m.Bytes()); err != nil {
		return err
	}
	err := r.eachFile(m.Files, progress, func(f proof.BackupFile, tell func(uint64)) error {
		out, err := disk.Create(disk.PathJoin(dir, f.Name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return fmt.Errorf("backup: copy: %w", err)
		}
		err = r.readStored(ctx, f, out, tell)
		if err == nil {
			err = out.Sync()
		}
		if err = errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("copy %s: %w", f.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return syncDir(disk, dir)
}

// Room returns an error if the disk of a directory has no room for a restore of the backup.
func (m *Manifest) Room(disk vfs.FS, dir string) error { return room(disk, dir, m.Bytes()) }

// readStored reads a file, compares it with its digest, and copies it to w, if not nil.
func (r *Repository) readStored(ctx context.Context, f proof.BackupFile, w io.Writer, tell func(uint64)) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, _ := r.stored(f.SHA256)
	in, err := r.fs.Open(path, vfs.SequentialReadsOption)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s, which is %s", ErrMissing, f.Name, path)
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if is := uint64(info.Size()); is != f.Size {
		return fmt.Errorf("%w: %s has %d bytes, expected %d: %s", ErrDamaged, f.Name, is, f.Size, path)
	}
	sum, buf := sha256.New(), make([]byte, min(pieceBytes, f.Size))
	for left := f.Size; left > 0; {
		n, err := io.ReadFull(in, buf[:min(left, pieceBytes)])
		if err != nil {
			return fmt.Errorf("backup: read %s: %w", path, err)
		}
		left -= uint64(n)
		sum.Write(buf[:n]) // first: vfs.File.Write may change its argument
		if w != nil {
			if _, err := w.Write(buf[:n]); err != nil {
				return fmt.Errorf("backup: %w", err)
			}
		}
		tell(uint64(n))
	}
	if is := contract.Digest(sum.Sum(nil)); is != f.SHA256 {
		return fmt.Errorf("%w: %s has SHA-256 %s, expected %s: %s", ErrDamaged, f.Name, is, f.SHA256, path)
	}
	return nil
}

// eachFile calls a function for some files, several concurrently. It continues after faulty files.
func (r *Repository) eachFile(all []proof.BackupFile, progress func(Progress), do func(f proof.BackupFile, tell func(uint64)) error) error {
	var mu sync.Mutex
	var found faults
	done := Progress{TotalFiles: uint64(len(all))}
	for _, f := range all {
		done.TotalBytes += f.Size
	}
	advance := func(bytes, files uint64) {
		mu.Lock()
		defer mu.Unlock()
		done.Bytes += bytes
		done.Files += files
		if progress != nil {
			progress(done)
		}
	}
	files := make(chan proof.BackupFile)
	var working sync.WaitGroup
	for range min(maxReading, len(all)) {
		working.Go(func() {
			for f := range files {
				err := do(f, func(bytes uint64) { advance(bytes, 0) })
				mu.Lock()
				found.add(err)
				mu.Unlock()
				advance(0, 1)
			}
		})
	}
	for _, f := range all {
		files <- f
	}
	close(files)
	working.Wait()
	return found.err()
}
