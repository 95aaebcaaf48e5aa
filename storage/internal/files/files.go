package files

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// ReplacingSuffix is what a file is called, after its own name, until it is whole.
const ReplacingSuffix = ".new"

// Replace makes a file, or replaces one at once, on stable storage. storage.ReplaceFile says what
// holds after an error, and which permissions the file gets.
func Replace(fs vfs.FS, path string, text []byte, mode os.FileMode) error {
	tmp := path + ReplacingSuffix
	// What was left over is another file: it may have been readable.
	f, err := createFor(fs, tmp, mode)
	if err != nil {
		return err
	}
	if err = Restrict(f, mode); err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fs.Rename(tmp, path)
	}
	if err == nil {
		err = SyncDir(fs, fs.PathDir(path))
	}
	return err
}

// createFor makes an empty file. On the machine's own file system, the file has no more permissions
// than mode gives from the beginning; what lies under the name goes first.
func createFor(fs vfs.FS, path string, mode os.FileMode) (vfs.File, error) {
	if vfs.Root(fs) != vfs.Default {
		return fs.Create(path, vfs.WriteCategoryUnspecified)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	return fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
}

// Restrict takes permissions away that a file has beyond a mode, where the file system knows
// permissions.
func Restrict(f vfs.File, mode os.FileMode) error {
	if f.Fd() == vfs.InvalidFd {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	has := info.Mode().Perm()
	if has&mode == has {
		return nil
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(int(f.Fd()), uint32(has&mode)))
}

// Read reads a file of at most so many bytes; of a longer one, one byte more.
func Read(fs vfs.FS, path string, most int64) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	return text, errors.Join(err, f.Close())
}

// SyncDir puts on stable storage which files a directory has.
func SyncDir(fs vfs.FS, path string) error {
	dir, err := fs.OpenDir(path)
	if err != nil {
		return fmt.Errorf("storage: sync %s: %w", path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("storage: sync %s: %w", path, err)
	}
	return nil
}

// MakeDir makes a directory that survives a crash, also one that is there and may not survive.
func MakeDir(fs vfs.FS, path string) error {
	if err := fs.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	return SyncDir(fs, fs.PathDir(path))
}
