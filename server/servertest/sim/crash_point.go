package sim

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// crashPoint is an operation on a node's disk before which the node loses its power. Losses of
// power at random times rarely hit the microseconds between two writes of one step.
type crashPoint struct {
	where string       // a part of the path
	left  atomic.Int64 // operations until the loss of power
	fire  func()
}

// sealing is the last sync of a segment of the log. No later sync repairs what is lost then.
const sealing = "the sync that seals a segment"

// crashPlaces are the files on which the validity of others depends, weighted by how often a node
// writes them.
var crashPlaces = []string{
	"raft/vote", "raft/snapshots", "raft/commit-mark", "raft/wal/meta", "raft/wal/", ".wal", ".wal", "store/", "CURRENT", "MANIFEST", ".sst", "projection/",
	sealing, sealing,
}

// pass is called before every operation on a disk. At the crash point it returns after the loss of
// power.
func (p *crashPoint) pass(d *disk, op errorfs.Op) {
	switch op.Kind {
	case errorfs.OpLink, errorfs.OpReuseForWrite:
		return // these block the clone of the disk
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

// crash takes the power of a node in the middle of a step.
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
			w.note(n.host, "crash point reached", "before", p.where)
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
