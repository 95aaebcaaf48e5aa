package files

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markers is a file system for Pebble. A database has a marker, a file whose name names the current
// MANIFEST. Pebble (v2.1.7) makes a MANIFEST and its marker, removes the marker before it, and then
// syncs their directory once. A loss of power in between may keep any of the three changes and lose
// the others: the marker of a MANIFEST that is gone, or no marker at all
// (https://github.com/cockroachdb/pebble/issues/5825). The node could not start with the one, and
// would take the other for an empty database. So the directory is synced before each of the two
// steps.
type markers struct{ vfs.FS }

// WithMarkers returns the file system to open a Pebble database in.
func WithMarkers(fs vfs.FS) vfs.FS { return markers{fs} }

// Unwrap returns the file system below, for vfs.Root.
func (m markers) Unwrap() vfs.FS { return m.FS }

func (m markers) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := m.before(path); err != nil {
		return nil, err
	}
	return m.FS.Create(path, c)
}

func (m markers) Remove(path string) error {
	if err := m.before(path); err != nil {
		return err
	}
	return m.FS.Remove(path)
}

// before syncs the directory of a marker.
func (m markers) before(path string) error {
	if !strings.HasPrefix(m.PathBase(path), "marker.") {
		return nil
	}
	return SyncDir(m.FS, m.PathDir(path))
}
