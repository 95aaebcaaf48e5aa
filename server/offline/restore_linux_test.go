package offline_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"runlog/server/offline"
	"runlog/server/servertest"
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
		n := servertest.Start(t, servertest.OnDisk(t))
		n.MustAppend("run", servertest.Numbered(0))
		repo := servertest.NewRepository(t)
		n.BackUp(repo)
		refuseTarget(t, repo, disk)
		opts := servertest.DiskOptions(t)
		opts.DataDir = filepath.Join(disk, "data")
		if _, err := offline.Restore(t.Context(), offline.RestoreOptions{Options: servertest.OfflineOptions(opts), Repository: repo}); err != nil {
			t.Error(err)
		}
	})
}
