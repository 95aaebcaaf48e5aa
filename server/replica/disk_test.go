package replica

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
)

// TestBytesBelow counts files, and comes to an end where a link leads back up.
func TestBytesBelow(t *testing.T) {
	t.Parallel()
	dir, mem := t.TempDir(), vfs.NewMem()
	for _, disk := range []vfs.FS{vfs.Default, mem} {
		for name, size := range map[string]int{"a": 1, "store/b": 10, "store/1/c": 100, "raft/wal/d": 1000} {
			path := filepath.Join(dir, name)
			if err := errors.Join(disk.MkdirAll(filepath.Dir(path), 0o700), storage.ReplaceFile(disk, path, make([]byte, size), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		wantBytes(t, bytesBelow(disk, dir, dirDepth), 1111)
		wantBytes(t, bytesBelow(disk, dir, 2), 11)
		wantBytes(t, bytesBelow(disk, filepath.Join(dir, "none"), dirDepth), 0)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "store", "up")); err != nil {
		t.Fatal(err)
	}
	if bytes := bytesBelow(vfs.Default, dir, dirDepth); bytes < 1111 {
		t.Errorf("%d bytes with a link that leads up", bytes)
	}
}

func wantBytes(t *testing.T, got, want uint64) {
	t.Helper()
	if got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}
