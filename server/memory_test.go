package server_test

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
	"runlog/server"
	"runlog/server/datadir"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// inMemory gives a node a file system in memory. Its data directory is a path that must not exist
// on the machine, which is checked when the test ends.
func inMemory(t testing.TB, disk vfs.FS) func(*server.Options) {
	return func(o *server.Options) {
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
	}{{server.MinMemoryBytes, 0, 16 << 20}, {0, 0, 64 << 20}, {1 << 40, 0, 64 << 20}, {server.MinMemoryBytes, 1 << 20, 1 << 20}} {
		o := server.Options{MemoryBytes: c.memory}
		o.Raft.SegmentBytes = c.set
		o.EnsureDefaults()
		servertest.WantEqual(t, fmt.Sprintf("size with %d bytes of memory", c.memory), o.Raft.SegmentBytes, c.size)
	}
}

// TestLogsFilesChangeSize: a node that is given more memory, or less, reads the files that it has
// written before, and continues in files of the new size (APP-1).
func TestLogsFilesChangeSize(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		n := servertest.Start(t, func(o *server.Options) { o.FS = disk })
		large, count := servertest.Payload(`{"x":"`+strings.Repeat("x", 20<<10)+`"}`), 1
		n.Append("run", servertest.NewEvent("Noted", servertest.Attempt(1)))
		for _, size := range []int{64 << 10, 256 << 10, 16 << 10, 64 << 10} {
			lost := disk.CrashClone(vfs.CrashCloneCfg{})
			n.Restart(func() { n.Opts.Raft.SegmentBytes, n.Opts.FS, disk = size, lost, lost })
			servertest.WantEqual(t, "events", len(n.List("run")), count)
			for range 20 {
				count++
				n.Append("run", servertest.NewEvent("Noted", servertest.Attempt(uint32(count)), large))
			}
		}
		n.Restart()
		servertest.WantEqual(t, "events", len(n.List("run")), count)
	})
}

// TestNodeInMemory: a node with a given file system and network uses nothing else, stores
// everything there, and detects another holder of its directory.
func TestNodeInMemory(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		n := servertest.Start(t, inMemory(t, disk), func(o *server.Options) { servertest.Seldom(0, o) })
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("RunCompleted"))
		n.Settle()
		before, id, key := n.Snapshot("run"), n.Server.NodeID(), filepath.Join(n.Opts.DataDir, datadir.KeyFile)
		servertest.WantEqual(t, "status over HTTP", n.Get(servertest.RunPath("run", "/snapshot"))["snapshot"].(map[string]any)["status"], any("COMPLETED"))
		servertest.WantEqual(t, "events that the metrics tell of", n.Metric("runlog_append_events_total"), 2)
		stream, err := runlogv1.NewClusterServiceClient(n.Conn).Backup(n.Context(), &runlogv1.BackupRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
		if !errors.Is(err, io.EOF) {
			t.Error("backup:", err)
		}
		bubble.Until(t, "the signing key", func() bool { _, err := disk.Stat(key); return err == nil })

		second := n.Opts
		second.Registry = nil
		var inUse *datadir.InUseError
		if _, err := server.Start(t.Context(), second); !errors.As(err, &inUse) || inUse.Dir != n.Opts.DataDir {
			t.Error("a second node on the directory:", err)
		}
		n.Restart()
		servertest.WantEqual(t, "name of the node", n.Server.NodeID(), id)
		servertest.WantEqual(t, "events", len(n.List("run")), 2)
		servertest.WantProto(t, "snapshot", n.Snapshot("run"), before)
		bubble.Until(t, "the size of the data", func() bool { _, data := n.Server.Disk().Usage(); return data > 0 })
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
			n := servertest.Start(t, change)
			n.Append("run", servertest.NewEvent("RunStarted"))
			rng := rand.New(rand.NewPCG(uint64(seed), 0))
			for cut := range 3 {
				servertest.WantEqual(t, "events before the cut", len(n.List("run")), cut+1)
				crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
				n.Close()
				disk, n.Opts.FS, n.Opts.Registry = crashed, crashed, nil
				n.Start()
				servertest.WantEqual(t, "events after the cut", len(n.List("run")), cut+1)
				n.Append("run", servertest.Steps(fmt.Sprint("s", cut), 1)...)
			}
			n.Close()
		}
	})
}

// TestClusterInMemory: nodes find each other, transfer state and follow over the given network.
func TestClusterInMemory(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		ns := servertest.StartNodes(t, 3, func(_ int, o *server.Options) { inMemory(t, vfs.NewMem())(o) })
		leader := ns.Leader()
		leader.MustAppend("run", servertest.NewEvent("RunStarted"))
		leader.Close()
		rest := ns.Followers()
		rest[0].MustAppend("run", servertest.NewEvent("RunCompleted"))
		leader.Opts.Registry = nil
		leader.Start()
		for _, n := range ns {
			servertest.WantEqual(t, "events at "+n.Opts.NodeID, len(n.List("run")), 2)
		}
		if _, err := network.New(1).Dial(t.Context(), servertest.Loopback, leader.Opts.RaftListen); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error("another network:", err)
		}
	})
}
