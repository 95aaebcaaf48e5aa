package clienttest

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a disk in memory that knows what was synced.
type disk struct {
	vfs.FS // mem
	mem    *vfs.MemFS
	// cloning keeps clones away from the two operations that take MemFS's clone lock twice: with a
	// clone in between, both would wait forever.
	cloning sync.RWMutex
}

func newDisk() *disk { return diskOf(vfs.NewCrashableMem()) }

func diskOf(mem *vfs.MemFS) *disk { return &disk{FS: mem, mem: mem} }

// losePower returns the disk with what was synced.
func (d *disk) losePower() *disk {
	d.cloning.Lock()
	defer d.cloning.Unlock()
	return diskOf(d.mem.CrashClone(vfs.CrashCloneCfg{}))
}

// Link is that of MemFS.
func (d *disk) Link(from, to string) error {
	d.cloning.RLock()
	defer d.cloning.RUnlock()
	return d.mem.Link(from, to)
}

// ReuseForWrite is that of MemFS.
func (d *disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	d.cloning.RLock()
	defer d.cloning.RUnlock()
	return d.mem.ReuseForWrite(from, to, c)
}
