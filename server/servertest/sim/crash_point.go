package sim

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// crashPoint is a place in what a node does to its disk, before which it loses its power. Losses of
// power that come when they come rarely hit the few microseconds between two writes of one step.
type crashPoint struct {
	where string       // a part of the path
	left  atomic.Int64 // operations until then
	fire  func()
}

// sealing is the place where a segment of the log is synced for the last time: what is lost of it
// then, no later sync makes good.
const sealing = "the sync that seals a segment"

// crashPlaces are the files of a node that say what others are worth. Weighed by how often they are
// written.
var crashPlaces = []string{
	"raft/vote", "raft/snapshots", "raft/commit-mark", "raft/wal/meta", "raft/wal/", ".wal", ".wal", "store/", "CURRENT", "MANIFEST", ".sst", "projection/",
	sealing, sealing,
}

// pass is called before every operation on a disk, and does not return before the power is gone
// where that is what it leads to.
func (p *crashPoint) pass(d *disk, op errorfs.Op) {
	switch op.Kind {
	case errorfs.OpLink, errorfs.OpReuseForWrite:
		return // these hold up the clone of the disk
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpRename, errorfs.OpRemove:
	default:
		return
	}
	if p.is(d, op) && p.left.Add(-1) == 0 {
		p.fire()
	}
}

func (p *crashPoint) is(d *disk, op errorfs.Op) bool {
	if p.where != sealing {
		return strings.Contains(op.Path, p.where)
	}
	if op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData || !strings.HasSuffix(op.Path, ".wal") {
		return false
	}
	info, err := d.mem.Stat(op.Path)
	return err == nil && info.Size() > segmentBytes
}

// crash lets a node lose its power in the middle of a step.
func (w *world) crash(f Fault, rng *rand.Rand) {
	n := w.nodes[f.Nodes[0]]
	fired := make(chan struct{})
	p := &crashPoint{where: crashPlaces[rng.IntN(len(crashPlaces))]}
	if p.left.Store(1); p.where != sealing {
		p.left.Add(rng.Int64N(8))
	}
	unsynced := rand.New(rand.NewPCG(f.Seed, 2))
	n.mu.Lock()
	d, l := n.disk, n.life
	n.mu.Unlock()
	if l == nil {
		return
	}
	p.fire = func() {
		if n.powerOff(l, unsynced, int(f.Size)) {
			w.note(n.host, "lost its power in the middle of a step", "before", p.where)
			w.count(CrashPoint)
		}
		close(fired)
	}
	d.point.Store(p)
	select {
	case <-fired:
	case <-time.After(f.For):
	}
	d.point.Store(nil)
	time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
	n.powerOn()
	if f.Size == killed {
		w.powerAfter(n, rng)
	}
}
