package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft-wal/types"

	"runlog/storage"
)

// walFiles gives raft-wal a file system that tests can replace.
type walFiles struct{ disk vfs.FS }

var _ types.VFS = walFiles{}

// segmentSuffix is raft-wal's.
const segmentSuffix = ".wal"

// ListDir returns the names in a directory, sorted.
func (w walFiles) ListDir(dir string) ([]string, error) {
	names, err := w.disk.List(dir)
	slices.Sort(names)
	return names, err
}

// segments returns the names of the segments in a directory, sorted.
func (w walFiles) segments(dir string) ([]string, error) {
	names, err := w.ListDir(dir)
	if err != nil {
		return nil, fmt.Errorf("raft: %w", err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, segmentSuffix) }), nil
}

// Create makes a file of a size. Its directory is synced with the file's first Sync.
func (w walFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	path := w.disk.PathJoin(dir, name)
	found, err := exists(w.disk, path)
	if err == nil && found {
		err = fmt.Errorf("raft: segment %s: %w", name, fs.ErrExist)
	}
	if err != nil {
		return nil, err
	}
	f, err := w.disk.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if size > 0 {
		// The blocks are reserved first, then made part of the file. A segment without reserved
		// blocks is correct too, and a signal may interrupt the reservation repeatedly.
		err = f.Preallocate(0, int64(size))
		if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINTR) {
			err = nil
		}
		if err == nil {
			_, err = f.WriteAt([]byte{0}, int64(size)-1)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &segmentFile{File: f, disk: w.disk, dir: dir}, nil
}

// Delete is on stable storage when it returns.
func (w walFiles) Delete(dir, name string) error {
	if err := w.disk.Remove(w.disk.PathJoin(dir, name)); err != nil {
		return err
	}
	return storage.SyncDir(w.disk, dir)
}

// OpenReader opens a file that exists.
func (w walFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	return w.disk.Open(w.disk.PathJoin(dir, name))
}

// OpenWriter opens a file that exists.
func (w walFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := w.open(dir, name)
	if err != nil {
		return nil, err
	}
	return &segmentFile{File: f, disk: w.disk, dir: dir}, nil
}

// open opens an existing file for reading and writing. vfs would create a missing file.
func (w walFiles) open(dir, name string) (vfs.File, error) {
	path := w.disk.PathJoin(dir, name)
	if _, err := w.disk.Stat(path); err != nil {
		return nil, err
	}
	return w.disk.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
}

// segmentFile is a segment that is written to.
type segmentFile struct {
	vfs.File
	disk  vfs.FS
	dir   string
	named bool // the name is on stable storage
}

// Sync returns once all that was written is on stable storage. raft-wal calls it from one goroutine
// at a time.
func (f *segmentFile) Sync() error {
	if err := datasync(f.File); err != nil {
		return err
	}
	if f.named {
		return nil
	}
	if err := storage.SyncDir(f.disk, f.dir); err != nil {
		return err
	}
	f.named = true
	return nil
}

// datasync makes a file's data durable, and the metadata needed to read it (fdatasync(2)).
func datasync(f vfs.File) error {
	for {
		if err := f.SyncData(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
