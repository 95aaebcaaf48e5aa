package sim

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// disk is what a node keeps over its lives. What was not synced may be lost with the power.
type disk struct {
	vfs.FS  // what the node sees
	mem     *vfs.MemFS
	clean   *clean
	life    *crashFS
	cloning sync.RWMutex // see linking

	// What goes wrong now. A node that has lost its power goes on with the disk of before, on which
	// nothing goes wrong: whatever it still does is lost.
	// nothing goes wrong before: Pebble leaves a goroutine behind when it cannot be opened
	serving   atomic.Bool
	syncFails atomic.Bool
	full      atomic.Bool
	latency   atomic.Int64 // of a write to the log, in nanoseconds

	over   atomic.Bool                // its life has ended
	rotten atomic.Bool                // a bit is flipped
	point  atomic.Pointer[crashPoint] // nil: none

	// hit counts what went wrong, by kind; the plan only says what should.
	hit struct{ sync, full, slow, lost atomic.Int64 }
}

const pebbleDB = "github.com/cockroachdb/pebble/v2.(*DB)."

var errSync = errors.New("input/output error (simulated)")

func newDisk() *disk { return diskOf(vfs.NewCrashableMem(), &clean{}) }

func diskOf(mem *vfs.MemFS, c *clean) *disk {
	d := &disk{mem: mem, clean: c, life: newMortal(mem, c)}
	d.FS = linking{errorfs.Wrap(d.life, errorfs.InjectorFunc(d.goWrong)), d}
	return d
}

// linking keeps what takes MemFS's lock of clones twice from meeting a clone in between, which
// would wait for ever.
type linking struct {
	vfs.FS
	d *disk
}

func (l linking) Link(from, to string) error {
	l.d.cloning.RLock()
	defer l.d.cloning.RUnlock()
	return l.FS.Link(from, to)
}

func (l linking) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	l.d.cloning.RLock()
	defer l.d.cloning.RUnlock()
	return l.FS.ReuseForWrite(from, to, category)
}

// goWrong is asked before every operation.
func (d *disk) goWrong(op errorfs.Op) error {
	if p := d.point.Load(); p != nil {
		p.pass(d, op)
	}
	// What Pebble does behind the scenes and cannot do, it tries again and again without a pause:
	// fake time would stand still, and who is to take the node down, or to make its projection
	// anew, would wait for ever.
	if (op.Kind == errorfs.OpOpen || op.Kind == errorfs.OpCreate) && (d.over.Load() || d.rotten.Load()) && strings.HasSuffix(op.Path, ".sst") && calledBy(pebbleDB+"compact1", pebbleDB+"collectTableStats") {
		time.Sleep(10 * time.Millisecond)
	}
	if !d.serving.Load() || spared(op.Path) {
		return nil
	}
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData:
		if d.syncFails.Load() && !d.isDir(op.Path) {
			d.hit.sync.Add(1)
			if d.cloning.Lock(); !d.over.Load() {
				d.clean.fail(d.mem, op.Path)
			}
			d.cloning.Unlock()
			return errSync
		}
		// Only where nobody waits for a mutex that is held meanwhile: fake time stands still for
		// those.
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

// spared tells what does not go wrong: Pebble calls Fatalf for its list of files, which must not
// return, with locks that nobody can take any more; and panics over the directories of its files
// (isDir). That ends a process, and real processes are tested with it.
func spared(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.HasPrefix(name, "MANIFEST") || strings.HasPrefix(name, "marker")
}

func (d *disk) isDir(path string) bool {
	info, err := d.mem.Stat(path)
	return err == nil && info.IsDir()
}

// killed, in place of a percentage, is the end of a process alone: all that it has written is
// there, and what was not synced still is not.
const killed = -1

// losePower returns the disk as the next life finds it: of what was not synced, unsynced percent
// are there, by blocks of 4 KiB and by names.
func (d *disk) losePower(rng *rand.Rand, unsynced int) *disk {
	defer d.mend()
	d.cloning.Lock()
	defer d.cloning.Unlock()
	d.over.Store(true)
	if unsynced == killed {
		d.life.die()
		next := diskOf(d.mem, d.clean)
		next.rotten.Store(d.rotten.Load())
		return next
	}
	next := diskOf(d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng}), &clean{})
	d.hit.lost.Store(int64(d.clean.lose(next.mem)))
	next.rotten.Store(d.rotten.Load())
	return next
}

func (d *disk) mend() {
	d.syncFails.Store(false)
	d.full.Store(false)
	d.latency.Store(0)
}

// free is what the node is told that the disk has left.
func (d *disk) free(string) (uint64, error) {
	if d.full.Load() {
		return 0, nil
	}
	return 1 << 40, nil
}
