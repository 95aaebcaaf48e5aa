package clienttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/server"
)

// node is one node of a server, over its lives.
type node struct {
	t       testing.TB
	name    string
	faults  *faults
	wire    wire
	host    string
	address string // for clients
	raft    string // its address for other nodes
	free    []func()
	members []string
	clock   atomic.Int64 // nanoseconds ahead of the right time
	ghosts  sync.WaitGroup

	mu   sync.Mutex
	disk *disk
	life *life // nil: the node is down
}

// life is the time of a node between its start and its end.
type life struct {
	over   atomic.Bool
	net    *sockets // of the server
	server *server.Server
	path   *path
}

func newNode(index int, w wire, f *faults, t testing.TB) (*node, error) {
	n := &node{t: t, name: fmt.Sprintf("node-%d", index+1), faults: f, wire: w, host: w.host(index), disk: newDisk()}
	for _, address := range []*string{&n.address, &n.raft} {
		at, free, err := w.reserve(index)
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		*address = at
		n.free = append(n.free, free)
	}
	return n, nil
}

// join makes the node one of a cluster's founders.
func (n *node) join(nodes []*node) {
	for _, other := range nodes {
		n.members = append(n.members, other.raft)
	}
}

func (n *node) options(l *life, d *disk) server.Options {
	free := net.JoinHostPort(n.host, "0")
	o := server.Options{
		DataDir: "data", FS: d, NodeID: n.name, Version: "clienttest",
		GRPCListen: free, HTTPListen: free, AdminListen: free, RaftListen: n.raft,
		GRPCAdvertise: n.address, BootstrapExpect: len(n.members),
		Listen: func(_, address string) (net.Listener, error) { return l.net.listen(address) },
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return l.net.dial(ctx, n.host, address)
		},
		Clock: func() time.Time { return time.Now().Add(time.Duration(n.clock.Load())) },
		// Nothing but the requests of the test is in the log.
		CheckpointInterval: -1,
		DiskFree:           func(string) (uint64, error) { return 1 << 40, nil },
		Fail: func(err error) {
			if !l.over.Load() {
				n.t.Errorf("clienttest: %s has stopped itself: %v", n.name, err)
			}
		},
		GRPC: []grpc.ServerOption{grpc.NumStreamWorkers(0)},
	}
	if len(n.members) > 1 {
		o.Join = n.members
	}
	o.Store.CacheBytes, o.Store.MemTableBytes = 1<<20, 1<<20
	o.Raft.SegmentBytes, o.Raft.ElectionTimeout = 64<<10, 300*time.Millisecond
	return o
}

// up starts the node, if it is down, and waits until it takes writes.
func (n *node) up(ctx context.Context) error {
	n.mu.Lock()
	d, current := n.disk, n.life
	n.mu.Unlock()
	if current != nil {
		return nil
	}
	l := &life{net: newSockets(n.wire)}
	s, err := server.Start(ctx, n.options(l, d))
	if err != nil {
		return err
	}
	l.server = s
	if err = s.WaitReady(ctx); err == nil {
		l.path, err = openPath(n, s.Addresses().GRPC)
	}
	if err != nil {
		l.over.Store(true)
		return errors.Join(err, s.Close())
	}
	n.mu.Lock()
	n.life = l
	n.mu.Unlock()
	return nil
}

// down takes the power of the node, if it is up. Goroutines cannot be killed: the server goes on as
// a ghost until it is closed, without connections, and on files that no later life sees.
func (n *node) down() {
	l := n.end()
	if l == nil {
		return
	}
	l.over.Store(true)
	l.path.close()
	l.net.cut()
	n.mu.Lock()
	n.disk = n.disk.losePower()
	n.mu.Unlock()
	n.ghosts.Go(func() { _ = l.server.Close() }) // what it cannot do any more does not matter
}

// end returns the life that ends; nil: the node is down.
func (n *node) end() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.life
	n.life = nil
	return l
}

// close stops the node as an operator does, and gives its addresses back.
func (n *node) close() (err error) {
	if l := n.end(); l != nil {
		l.path.close()
		if err = l.server.Close(); err != nil {
			err = fmt.Errorf("stop %s: %w", n.name, err)
		}
		l.over.Store(true)
	}
	n.ghosts.Wait()
	for _, free := range n.free {
		free()
	}
	return err
}

// conn returns a connection to the node that has no faults; nil: the node is down.
func (n *node) conn() *grpc.ClientConn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil {
		return nil
	}
	return n.life.path.node
}
