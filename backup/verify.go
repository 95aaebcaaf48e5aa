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

	"runlog/proof"
	"runlog/proto/contract"
)

const (
	// maxReading is how many files are read at a time: a hash is a core's work.
	maxReading = 4
	// maxFaults is how many damaged files are told of one by one.
	maxFaults = 5
)

// Verify reads all files of a backup and compares them with its manifest. Errors are ErrMissing and ErrDamaged for each file
// at fault, of the first few, the context's, and those of the disk. progress, where not nil, is called by several goroutines, one at a time.
func (r *Repository) Verify(ctx context.Context, m *Manifest, progress func(Progress)) error {
	return r.eachFile(m, progress, func(f proof.BackupFile, tell func(uint64)) error { return r.readStored(ctx, f, nil, tell) })
}

// Copy copies the files of a backup, under their names, into an empty directory on a disk, and syncs all. They are compared
// with the manifest once more while they are read. It writes nothing when there is no room. Errors are those of Verify, and
// ErrNoRoom.
func (r *Repository) Copy(ctx context.Context, m *Manifest, disk vfs.FS, dir string, progress func(Progress)) error {
	if err := room(disk, dir, m.Bytes()); err != nil {
		return err
	}
	err := r.eachFile(m, progress, func(f proof.BackupFile, tell func(uint64)) error {
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

// Room refuses a restore into a directory whose disk has no room for the backup.
func (m *Manifest) Room(disk vfs.FS, dir string) error { return room(disk, dir, m.Bytes()) }

// readStored reads a file, compares it with what it must be, and writes it to w on the way, where that is not nil.
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
		return fmt.Errorf("%w: %s has %d bytes, and had %d: %s", ErrDamaged, f.Name, is, f.Size, path)
	}
	sum, buf := sha256.New(), make([]byte, min(pieceBytes, f.Size))
	for left := f.Size; left > 0; {
		n, err := io.ReadFull(in, buf[:min(left, pieceBytes)])
		if err != nil {
			return fmt.Errorf("backup: read %s: %w", path, err)
		}
		left -= uint64(n)
		sum.Write(buf[:n]) // first: vfs.File.Write may change what it is given
		if w != nil {
			if _, err := w.Write(buf[:n]); err != nil {
				return fmt.Errorf("backup: %w", err)
			}
		}
		tell(uint64(n))
	}
	if is := contract.Digest(sum.Sum(nil)); is != f.SHA256 {
		return fmt.Errorf("%w: %s has SHA-256 %s, and had %s: %s", ErrDamaged, f.Name, is, f.SHA256, path)
	}
	return nil
}

// eachFile does something with each file of a backup, several at a time. It goes on past files that are at fault.
func (r *Repository) eachFile(m *Manifest, progress func(Progress), do func(f proof.BackupFile, tell func(uint64)) error) error {
	var mu sync.Mutex
	var faults []error
	var more int
	done := Progress{TotalBytes: m.Bytes(), TotalFiles: uint64(len(m.Files))}
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
	for range min(maxReading, len(m.Files)) {
		working.Go(func() {
			for f := range files {
				err := do(f, func(bytes uint64) { advance(bytes, 0) })
				mu.Lock()
				if err != nil && errors.Is(errors.Join(faults...), context.Canceled) {
					err = nil // said once is enough
				}
				if err != nil && len(faults) < maxFaults {
					faults = append(faults, err)
				} else if err != nil {
					more++
				}
				mu.Unlock()
				advance(0, 1)
			}
		})
	}
	for _, f := range m.Files {
		files <- f
	}
	close(files)
	working.Wait()
	if more > 0 {
		faults = append(faults, fmt.Errorf("and %d files more", more))
	}
	return errors.Join(faults...)
}
