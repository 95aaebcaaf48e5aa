package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/datadir"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// inMemory gives a node a file system in memory. Its data directory is a path that must not exist
// on the machine, which is checked when the test ends.
func inMemory(t testing.TB, disk vfs.FS) func(*Options) {
	return func(o *Options) {
		o.FS = disk
		nowhere := filepath.Join(t.TempDir(), "nowhere")
		o.DataDir = filepath.Join(nowhere, "data", "node")
		t.Cleanup(func() {
			if _, err := os.Lstat(nowhere); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a node in memory has made %s on the machine's disk: %v", nowhere, err)
			}
		})
	}
}

// TestSizesOfTheLogsFiles: a small node has small files, a large one does not wait for larger ones,
// and a size that was set stays.
func TestSizesOfTheLogsFiles(t *testing.T) {
	for _, c := range []struct {
		memory    int64
		set, size int
	}{{MinMemoryBytes, 0, 16 << 20}, {0, 0, 64 << 20}, {1 << 40, 0, 64 << 20}, {MinMemoryBytes, 1 << 20, 1 << 20}} {
		o := Options{MemoryBytes: c.memory}
		o.Raft.SegmentBytes = c.set
		o.EnsureDefaults()
		wantEqual(t, fmt.Sprintf("size with %d bytes of memory", c.memory), o.Raft.SegmentBytes, c.size)
	}
}

// TestLogsFilesChangeSize: a node that is given more memory, or less, reads the files that it has
// written before, and goes on in files of the new size (APP-1).
func TestLogsFilesChangeSize(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		n := startNode(t, func(o *Options) { o.FS = disk })
		large, count := payload(`{"x":"`+strings.Repeat("x", 20<<10)+`"}`), 1
		n.append("run", newEvent("Noted", attempt(1)))
		for _, size := range []int{64 << 10, 256 << 10, 16 << 10, 64 << 10} {
			lost := disk.CrashClone(vfs.CrashCloneCfg{})
			n.restart(func() { n.opts.Raft.SegmentBytes, n.opts.FS, disk = size, lost, lost })
			wantEqual(t, "events", len(n.list("run")), count)
			for range 20 {
				count++
				n.append("run", newEvent("Noted", attempt(uint32(count)), large))
			}
		}
		n.restart()
		wantEqual(t, "events", len(n.list("run")), count)
	})
}

// TestNodeInMemory: a node with a given file system and network uses nothing else, stores
// everything there, and detects another holder of its directory.
func TestNodeInMemory(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		n := startNode(t, inMemory(t, disk), func(o *Options) { seldom(0, o) })
		n.append("run", newEvent("RunStarted"), newEvent("RunCompleted"))
		n.settle()
		before, id, key := n.snapshot("run"), n.server.NodeID(), filepath.Join(n.opts.DataDir, datadir.KeyFile)
		wantEqual(t, "status over HTTP", n.get(runPath("run", "/snapshot"))["snapshot"].(map[string]any)["status"], any("COMPLETED"))
		wantEqual(t, "events that the metrics tell of", n.metric("runlog_append_events_total"), 2)
		stream, err := runlogv1.NewClusterServiceClient(n.conn).Backup(n.context(), &runlogv1.BackupRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
		if !errors.Is(err, io.EOF) {
			t.Error("backup:", err)
		}
		bubble.Until(t, "the signing key", func() bool { _, err := disk.Stat(key); return err == nil })

		second := n.opts
		second.Registry = nil
		var inUse *datadir.InUseError
		if _, err := Start(t.Context(), second); !errors.As(err, &inUse) || inUse.Dir != n.opts.DataDir {
			t.Error("a second node on the directory:", err)
		}
		n.restart()
		wantEqual(t, "name of the node", n.server.NodeID(), id)
		wantEqual(t, "events", len(n.list("run")), 2)
		wantProto(t, "snapshot", n.snapshot("run"), before)
		bubble.Until(t, "the size of the data", func() bool { _, data := n.server.disk.Usage(); return data > 0 })
	})
}

// TestPowerCutAPP2: after a power cut that keeps synced data only, or some of the rest too, every
// acknowledged event is there, from the first append on.
func TestPowerCutAPP2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for seed, percent := range []int{0, 50, 100} {
			disk := vfs.NewCrashableMem()
			change := inMemory(t, disk)
			n := startNode(t, change)
			n.append("run", newEvent("RunStarted"))
			rng := rand.New(rand.NewPCG(uint64(seed), 0))
			for cut := range 3 {
				wantEqual(t, "events before the cut", len(n.list("run")), cut+1)
				crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
				n.close()
				disk, n.opts.FS, n.opts.Registry = crashed, crashed, nil
				n.start()
				wantEqual(t, "events after the cut", len(n.list("run")), cut+1)
				n.append("run", steps(fmt.Sprint("s", cut), 1)...)
			}
			n.close()
		}
	})
}

// TestClusterInMemory: nodes find each other, transfer state and follow over the given network.
func TestClusterInMemory(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3, func(_ int, o *Options) { inMemory(t, vfs.NewMem())(o) })
		leader := ns.leader()
		leader.mustAppend("run", newEvent("RunStarted"))
		leader.close()
		rest := ns.followers()
		rest[0].mustAppend("run", newEvent("RunCompleted"))
		leader.opts.Registry = nil
		leader.start()
		for _, n := range ns {
			wantEqual(t, "events at "+n.opts.NodeID, len(n.list("run")), 2)
		}
		if _, err := network.New(1).Dial(t.Context(), loopback, leader.opts.RaftListen); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error("another network:", err)
		}
	})
}
