package outbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// fileSystem is what an outbox needs of the operating system.
type fileSystem interface {
	// Resolve follows symbolic links, so that a file has one name, and one lock.
	Resolve(path string) (string, error)
	// Open opens a file as os.OpenFile does. A new file is for its owner alone.
	Open(path string, flag int) (file, error)
	Rename(from, to string) error
	Remove(path string) error
	// Names lists a directory.
	Names(dir string) ([]string, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock locks a file until it is closed; the error is a *LockedError if it is locked.
	Lock(path string) (io.Closer, error)
}

// file is an open file. A failed Sync may have lost what was written since the last one.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
}

// osFiles is the file system of the operating system.
type osFiles struct{}

var _ fileSystem = osFiles{}

func (osFiles) Resolve(path string) (string, error) {
	if path == "" {
		return "", errors.New("the path is empty; name a file")
	}
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		return target, checkRegular(target)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: errors.New("it is a link to a file that does not exist")}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("open %s: its directory cannot be found; make it, or name another: %w", path, err)
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// checkRegular refuses a directory or a device, before a file for its lock is made.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(path)
	}
	return err
}

func notRegular(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: errors.New("it is no regular file; name another")}
}

func (osFiles) Open(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFiles) Rename(from, to string) error { return os.Rename(from, to) }

func (osFiles) Remove(path string) error { return os.Remove(path) }

func (osFiles) Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

func (osFiles) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (osFiles) Lock(path string) (io.Closer, error) { return lockFile(path) }

// osFile is a regular file.
type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, notRegular(f.Name())
	}
	return info.Size(), nil
}
