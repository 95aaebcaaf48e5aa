package sim

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// disk is what a node keeps over its lives. What was not synced may be lost with the power.
type disk struct {
	vfs.FS // what the node sees
	mem    *vfs.MemFS

	// What goes wrong now. A node that has lost its power goes on with the disk of before, on which nothing goes wrong:
	// whatever it still does is lost.
	syncFails atomic.Bool
	full      atomic.Bool
	latency   atomic.Int64 // of a write to the log, in nanoseconds

	// hit counts what went wrong, by kind; the plan only says what should.
	hit struct{ sync, full, slow atomic.Int64 }
}

var errSync = errors.New("input/output error (simulated)")

func newDisk() *disk { return diskOf(vfs.NewCrashableMem()) }

func diskOf(mem *vfs.MemFS) *disk {
	d := &disk{mem: mem}
	d.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(d.goWrong))
	return d
}

// goWrong is asked before every operation.
func (d *disk) goWrong(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData:
		if d.syncFails.Load() {
			d.hit.sync.Add(1)
			return errSync
		}
		// Only where nobody waits for a mutex that is held meanwhile: fake time stands still for those.
		if wait := d.latency.Load(); wait > 0 && strings.HasSuffix(op.Path, ".wal") {
			d.hit.slow.Add(1)
			time.Sleep(time.Duration(wait))
		}
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpFilePreallocate:
		if d.full.Load() {
			d.hit.full.Add(1)
			return syscall.ENOSPC
		}
	default:
	}
	return nil
}

// losePower returns the disk as the next life finds it: of what was not synced, unsynced percent are there, by blocks of
// 4 KiB and by names.
func (d *disk) losePower(rng *rand.Rand, unsynced int) *disk {
	return diskOf(d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng}))
}

// free is what the node is told that the disk has left.
func (d *disk) free(string) (uint64, error) {
	if d.full.Load() {
		return 0, nil
	}
	return 1 << 40, nil
}
