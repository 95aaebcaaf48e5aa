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

// disk is a node's disk, over its lives. A loss of power may take what was not synced.
type disk struct {
	vfs.FS  // as the node sees it
	mem     *vfs.MemFS
	clean   *clean
	gone    *unlinked
	life    *crashFS
	cloning sync.RWMutex // see linking

	// The faults of now. A node that has lost its power continues with a copy of its disk, which
	// has no faults: all that it still does is lost.
	//
	// No fault happens before serving is set: Pebble leaves a goroutine behind if its start fails.
	serving   atomic.Bool
	syncFails atomic.Bool
	full      atomic.Bool
	latency   atomic.Int64 // of a write to the log, in nanoseconds

	over   atomic.Bool                // its life has ended
	rotten atomic.Bool                // a bit is flipped
	point  atomic.Pointer[crashPoint] // nil: none

	// opened counts how often background work has opened a table, see retried.
	opened struct {
		sync.Mutex
		times map[string]int
	}

	// hit counts the faults that an operation met, by kind.
	hit struct{ sync, full, slow, lost atomic.Int64 }
}

// freeOpens is how often background work opens a table without a pause.
const freeOpens = 3

const pebbleDB = "github.com/cockroachdb/pebble/v2.(*DB)."

var errSync = errors.New("input/output error (simulated)")

func newDisk() *disk { return diskOf(vfs.NewCrashableMem(), &clean{}, &unlinked{}) }

func diskOf(mem *vfs.MemFS, c *clean, u *unlinked) *disk {
	d := &disk{mem: mem, clean: c, gone: u, life: newCrashFS(mem, c, u)}
	d.FS = linking{errorfs.Wrap(d.life, errorfs.InjectorFunc(d.goWrong)), d}
	return d
}

// linking keeps clones away from operations that take MemFS's clone lock twice: with a clone in
// between, both would wait forever.
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

// goWrong is called before every operation, and returns the error of a fault.
func (d *disk) goWrong(op errorfs.Op) error {
	if p := d.point.Load(); p != nil {
		p.pass(d, op)
	}
	// Pebble retries its background work without a pause when that fails. Fake time would stand
	// still, and the goroutine that closes the node or rebuilds its projection would wait forever.
	if (op.Kind == errorfs.OpOpen || op.Kind == errorfs.OpCreate) && (d.over.Load() || d.rotten.Load()) && strings.HasSuffix(op.Path, ".sst") && calledBy(pebbleDB+"compact1", pebbleDB+"collectTableStats") && d.retried(op) {
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
		// Only where no goroutine waits for a mutex that is held meanwhile: fake time would stand
		// still.
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

// retried reports whether background work seems to be retried. It must not pause the first times
// that it opens a file: readers of the file wait until it is open, and may hold a mutex meanwhile.
func (d *disk) retried(op errorfs.Op) bool {
	if op.Kind == errorfs.OpCreate {
		return true // of a new name every time, and no reader waits
	}
	d.opened.Lock()
	defer d.opened.Unlock()
	if d.opened.times == nil {
		d.opened.times = map[string]int{}
	}
	d.opened.times[op.Path]++
	return d.opened.times[op.Path] > freeOpens
}

// spared reports which files have no faults. For its list of files Pebble calls Fatalf, which must
// not return, and holds locks meanwhile. It panics over the directories of its files (isDir). Both
// end a process; package procs tests them.
func spared(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.HasPrefix(name, "MANIFEST") || strings.HasPrefix(name, "marker")
}

func (d *disk) isDir(path string) bool {
	info, err := d.mem.Stat(path)
	return err == nil && info.IsDir()
}

// killed, in place of a percentage, ends only the process: all that it wrote is there, and what it
// did not sync can still be lost later.
const killed = -1

// losePower returns the disk that the next life finds. Of the unsynced data, unsynced percent are
// there, by blocks of 4 KiB and by names, and as many of the files are gone whose removal was not
// synced.
func (d *disk) losePower(rng *rand.Rand, unsynced int) *disk {
	defer d.heal()
	d.cloning.Lock()
	defer d.cloning.Unlock()
	d.over.Store(true)
	if unsynced == killed {
		d.life.die()
		next := diskOf(d.mem, d.clean, d.gone)
		next.rotten.Store(d.rotten.Load())
		return next
	}
	next := diskOf(d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng}), &clean{}, &unlinked{})
	d.gone.lose(next.mem, rng, unsynced)
	d.hit.lost.Store(int64(d.clean.lose(next.mem)))
	next.rotten.Store(d.rotten.Load())
	return next
}

// copied returns a copy of the disk of a node that is off.
func (d *disk) copied() *disk {
	d.cloning.Lock()
	defer d.cloning.Unlock()
	return diskOf(d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))}), &clean{}, &unlinked{})
}

func (d *disk) heal() {
	d.syncFails.Store(false)
	d.full.Store(false)
	d.latency.Store(0)
}

// free returns the free space that the node sees.
func (d *disk) free(string) (uint64, error) {
	if d.full.Load() {
		return 0, nil
	}
	return 1 << 40, nil
}
