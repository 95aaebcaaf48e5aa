package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc/test/bufconn"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/datadir"
)

// memoryNet is a network in memory. It has the loopback addresses only.
type memoryNet struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	lastPort  int
}

// memoryListener is a listener of a memoryNet.
type memoryListener struct {
	*bufconn.Listener
	net     *memoryNet
	address string
}

func (m *memoryNet) listen(network, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if port == "0" {
		m.lastPort++
		address = net.JoinHostPort(host, fmt.Sprint(m.lastPort))
	}
	if m.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: syscall.EADDRINUSE}
	}
	if m.listeners == nil {
		m.listeners = map[string]*bufconn.Listener{}
	}
	l := bufconn.Listen(64 << 10)
	m.listeners[address] = l
	return &memoryListener{l, m, address}, nil
}

func (m *memoryNet) dial(ctx context.Context, address string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[address]
	m.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	return l.DialContext(ctx)
}

func (l *memoryListener) Close() error {
	l.net.mu.Lock()
	if l.net.listeners[l.address] == l.Listener {
		delete(l.net.listeners, l.address)
	}
	l.net.mu.Unlock()
	return l.Listener.Close()
}

func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.address) }

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

// inMemory gives a node a file system and a network in memory. Its data directory is a path that
// must not exist on the machine, which is checked when the test ends.
func inMemory(t testing.TB, disk vfs.FS, network *memoryNet) func(*Options) {
	return func(o *Options) {
		o.FS, o.Listen, o.Dial = disk, network.listen, network.dial
		nowhere := filepath.Join(o.DataDir, "nowhere")
		o.DataDir = filepath.Join(nowhere, "data", "node")
		t.Cleanup(func() {
			if _, err := os.Lstat(nowhere); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a node in memory has made %s on the machine's disk: %v", nowhere, err)
			}
		})
	}
}

// TestNodeInMemory: a node with a given file system and network uses nothing else, stores
// everything there, and detects another holder of its directory.
func TestNodeInMemory(t *testing.T) {
	t.Parallel()
	disk, network := vfs.NewMem(), &memoryNet{}
	n := startNode(t, inMemory(t, disk, network), func(o *Options) { seldom(0, o) })
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
	eventually(t, "the signing key", func() bool { _, err := disk.Stat(key); return err == nil })

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
	eventually(t, "the size of the data", func() bool { _, data := n.server.disk.Usage(); return data > 0 })
}

// TestPowerCutAPP2: after a power cut that keeps synced data only, or some of the rest too, every
// acknowledged event is there, from the first append on.
func TestPowerCutAPP2(t *testing.T) {
	t.Parallel()
	for seed, percent := range []int{0, 50, 100} {
		disk := vfs.NewCrashableMem()
		change := inMemory(t, disk, &memoryNet{})
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
}

// TestClusterInMemory: nodes find each other, transfer state and follow over the given network.
func TestClusterInMemory(t *testing.T) {
	t.Parallel()
	network := &memoryNet{}
	ns := startNodes(t, 3, func(_ int, o *Options) { inMemory(t, vfs.NewMem(), network)(o) })
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
	if _, err := (&memoryNet{}).dial(t.Context(), leader.opts.RaftListen); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error("another network:", err)
	}
}
