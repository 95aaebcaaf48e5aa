package server

import (
	"path/filepath"
	"syscall"
	"testing"

	"runlog/server/offline"
	"runlog/testbed/bubble"
)

// TestRestoreOntoADisk: a directory where a disk is mounted is refused before anything is read; one
// below it is not.
func TestRestoreOntoADisk(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		disk := t.TempDir()
		if err := syscall.Mount("none", disk, "tmpfs", 0, "size=64m"); err != nil {
			t.Skip("no file system can be mounted here:", err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		n := startNode(t, onDisk(t))
		n.mustAppend("run", numbered(0))
		repo := newRepository(t)
		n.backUp(repo)
		refuseTarget(t, repo, disk)
		opts := diskOptions(t)
		opts.DataDir = filepath.Join(disk, "data")
		if _, err := offline.Restore(t.Context(), offline.RestoreOptions{Options: offlineOptions(opts), Repository: repo}); err != nil {
			t.Error(err)
		}
	})
}
