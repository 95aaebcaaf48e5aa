package storage

import (
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/files"
)

// ReplaceFile makes a file, or replaces one at once, on stable storage. After an error a restart
// may find either of the two, but it finds one of them, whole. On a file system that knows
// permissions, the file never has more of them than mode gives, from before its first byte. The
// text is the file system's from then on.
func ReplaceFile(fs vfs.FS, path string, text []byte, mode os.FileMode) error {
	return files.Replace(fs, path, text, mode)
}

// Restrict takes permissions away that a file has beyond a mode, where the file system knows
// permissions.
func Restrict(f vfs.File, mode os.FileMode) error { return files.Restrict(f, mode) }

// ReadFile reads a file of at most so many bytes; of a longer one, one byte more.
func ReadFile(fs vfs.FS, path string, most int64) ([]byte, error) { return files.Read(fs, path, most) }

// Damage marks an error: a file of the data directory is missing or damaged. The node knows the
// remedy, which depends on the other members.
func Damage(cause error) error { return files.Damage(cause) }

// Damaged reports whether an error is marked so.
func Damaged(err error) bool { return files.Damaged(err) }

// SyncDir puts on stable storage which files a directory has.
func SyncDir(fs vfs.FS, path string) error { return files.SyncDir(fs, path) }

// WithMarkers returns the file system to open a Pebble database in, so that a loss of power leaves
// the database as it was before, or after, a change of its MANIFEST.
func WithMarkers(fs vfs.FS) vfs.FS { return files.WithMarkers(fs) }
