package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proto/contract"
)

var (
	// ErrBusy means that another process is changing the directory.
	ErrBusy = errors.New("backup: another process is changing the directory")
	// ErrNone means that the backup does not exist.
	ErrNone = errors.New("backup: no such backup")
	// ErrManifest means that a manifest is damaged, or does not match its name.
	ErrManifest = errors.New("backup: damaged manifest")
	// ErrMissing means that a file of a backup is not there.
	ErrMissing = errors.New("backup: a file is missing")
	// ErrDamaged means that a file of a backup has other bytes than were backed up.
	ErrDamaged = errors.New("backup: a file is damaged")
	// ErrStream means that the node's stream is not a backup, or was cut.
	ErrStream = errors.New("backup: incomplete stream from the node")
	// ErrForeign means that the directory has backups of another cluster.
	ErrForeign = errors.New("backup: the directory has backups of another cluster")
	// ErrNoRoom means that the disk has less room than is needed.
	ErrNoRoom = errors.New("backup: the disk has no room")
)

const (
	filesDir       = "files"
	incomingDir    = "incoming"
	incompleteFile = "incomplete"
	lockFile       = "LOCK"
	manifestSuffix = ".manifest"

	// pieceBytes is how much of a file is in memory while it is read.
	pieceBytes = 1 << 20
)

var storedRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Repository is a directory of backups. Making one has no effect on the disk; several may share a
// directory.
type Repository struct {
	fs  vfs.FS
	dir string
}

// Open returns the repository in a directory, which need not exist. fs is the file system of the
// directory; nil: the operating system's.
func Open(fs vfs.FS, dir string) *Repository {
	if fs == nil {
		fs = vfs.Default
	}
	return &Repository{fs, dir}
}

// Progress is how far a work is, in bytes and files.
type Progress struct {
	Bytes, TotalBytes uint64
	Files, TotalFiles uint64
}

// path of something in the directory.
func (r *Repository) path(elements ...string) string {
	return r.fs.PathJoin(append([]string{r.dir}, elements...)...)
}

// stored returns the path of a file, and its directory below filesDir.
func (r *Repository) stored(sum contract.Digest) (path, sub string) {
	name := sum.String()
	return r.path(filesDir, name[:2], name), name[:2]
}

// lock keeps others from changing the directory, which it makes, until the closer is closed.
func (r *Repository) lock() (io.Closer, error) {
	// As a data directory: a backup holds all that one does.
	if err := r.fs.MkdirAll(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	// It may be there and not survive a crash.
	if err := syncDir(r.fs, r.fs.PathDir(r.dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, err
	}
	lock, err := r.fs.Lock(r.path(lockFile))
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("backup: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBusy, r.dir, err)
	}
	return lock, nil
}

// has reports whether a file of that size is stored.
func (r *Repository) has(sum contract.Digest, size uint64) bool {
	path, _ := r.stored(sum)
	info, err := r.fs.Stat(path)
	return err == nil && uint64(info.Size()) == size
}

// room refuses to write more bytes into a directory than its disk has.
func room(disk vfs.FS, dir string, bytes uint64) error {
	usage, err := disk.GetDiskUsage(dir)
	if err == nil && bytes > usage.AvailBytes {
		return fmt.Errorf("%w: %s needs %d bytes, %d are free", ErrNoRoom, dir, bytes, usage.AvailBytes)
	}
	return nil // if the file system does not report its free space, a write will fail instead
}

func syncDir(disk vfs.FS, path string) error {
	dir, err := disk.OpenDir(path)
	if err != nil {
		return fmt.Errorf("backup: sync: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("backup: sync %s: %w", path, err)
	}
	return nil
}
