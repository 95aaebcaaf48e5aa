package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"runlog/audit/policy"
	"runlog/server"
	"runlog/server/subscriptions/delivery"
)

// node is one member of the cluster, over its lives.
type node struct {
	world *world
	index int // among the world's nodes
	host  string
	clock *clock
	stops atomic.Int32 // times that the node stopped itself without a fault of its disk
	older atomic.Bool  // its disk is an older copy, and it has not stopped itself yet

	mu    sync.Mutex
	disk  *disk
	life  *life // nil: its power is off
	lives int
	lost  bool   // its disk is lost; it cannot be powered on
	alone bool   // it founds a cluster alone, or was restored, and no other has joined it yet
	joins bool   // it joins the existing cluster
	token string // a join token
}

// life is the time of a node between power on and power off.
type life struct {
	node   *node
	server *server.Server // nil until it serves
	closed chan struct{}  // when the server is closed
	first  atomic.Bool    // a goroutine closes the server
	ended  context.Context
	end    context.CancelFunc
	failed chan struct{} // closed when the node has stopped itself
	reason error
	once   sync.Once
	done   sync.WaitGroup
}

const (
	grpcPort = ":7001"
	raftPort = ":7002"
	// startPatience bounds one start. A start waits while the cluster has no majority.
	startPatience = 10 * time.Minute
	segmentBytes  = 16 << 10 // of the log
)

func (n *node) options(l *life) server.Options {
	hosts := n.world.hosts()
	join := make([]string, len(hosts))
	for i, h := range hosts {
		join[i] = h + raftPort
	}
	expect := len(hosts)
	switch {
	case n.joins:
		expect = 0
	case len(hosts) == 1, n.alone:
		join, expect = nil, 1
	}
	disk := n.disk
	o := server.Options{
		DataDir: "data", FS: disk, NodeID: n.host, Version: "sim",
		GRPCListen: n.host + grpcPort, HTTPListen: n.host + ":7003", AdminListen: n.host + ":7004", RaftListen: n.host + raftPort,
		Insecure: true, Authenticate: true, AdminToken: n.world.adminHash, BootstrapExpect: expect, Join: join, JoinToken: n.token,
		Listen: func(_, address string) (net.Listener, error) {
			if l.ended.Err() != nil {
				return nil, net.ErrClosed
			}
			return n.world.net.Listen("tcp", address)
		},
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(l.ended, cancel)()
			if l.ended.Err() != nil {
				return nil, net.ErrClosed
			}
			return n.world.net.Dial(ctx, n.host, address)
		},
		DialOut: func(ctx context.Context, _, address string) (net.Conn, error) {
			if l.ended.Err() != nil {
				return nil, net.ErrClosed
			}
			return n.world.net.Dial(ctx, n.host, address)
		},
		CheckpointInterval: checkpointEvery, Witnesses: []policy.Endpoint{n.world.cosigner.endpoint()},
		Clock: n.clock.now, Monotonic: time.Now, DiskFree: disk.free, Logger: n.world.logger(n.host).With("life", n.lives), Fail: l.fail,
		GRPC: []grpc.ServerOption{grpc.NumStreamWorkers(0)},
		OpenSink: func() delivery.Sink {
			return n.world.clients.OpenSink(func() bool { return l.ended.Err() == nil && !n.world.original.Load() })
		},
	}
	// Small limits bring about within a minute what takes weeks elsewhere: runs that leave memory,
	// logs that are truncated, and nodes so far behind that the leader sends them a snapshot.
	o.Store.CacheBytes, o.Store.MemTableBytes, o.Store.ActiveBytes, o.Store.RowBytes = 1<<20, 256<<10, 12<<10, 6<<10
	o.Store.ChainBytes = 4 << 10
	o.Raft.CommitTimeout = 50 * time.Millisecond // most of what an idle cluster does
	o.Raft.SegmentBytes, o.Raft.CacheBytes = segmentBytes, 32<<10
	o.Raft.TruncateBytes, o.Raft.TrailingBytes, o.Raft.TrailingEntries = 32<<10, 4<<10, 8
	return o
}

// powerOn begins a life and returns at once. The node serves when serving returns its server.
func (n *node) powerOn() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life != nil || n.lost || n.world.ended() {
		return
	}
	n.lives++
	l := &life{node: n, failed: make(chan struct{}), closed: make(chan struct{})}
	l.ended, l.end = context.WithCancel(context.Background())
	n.life = l
	opts := n.options(l)
	disk := n.disk
	l.done.Go(func() { l.run(opts, disk) })
}

// run starts the node, and closes it after its life has ended.
func (l *life) run(opts server.Options, disk *disk) {
	ctx, cancel := context.WithTimeout(l.ended, startPatience)
	defer cancel()
	s, err := server.Start(ctx, opts)
	if err != nil {
		if l.ended.Err() == nil {
			l.fail(fmt.Errorf("start: %w", err))
		}
		return
	}
	l.node.mu.Lock()
	disk.serving.Store(true)
	l.server = s
	l.node.mu.Unlock()
	<-l.ended.Done()
	l.close() // whatever the node still does reaches neither its disk nor another host
}

// close closes the server, and returns when it is closed, also if another goroutine closes it. A
// sync.Once would hold a mutex meanwhile.
func (l *life) close() {
	if l.first.CompareAndSwap(false, true) {
		if err := l.server.Close(); err != nil {
			l.node.world.note(l.node.host, "cannot close the server", "err", err)
		}
		close(l.closed)
	}
	<-l.closed
}

// fail is the function that a node calls when it must stop itself. Its process ends with the call.
func (l *life) fail(err error) {
	l.once.Do(func() {
		l.reason = err
		close(l.failed)
		l.node.world.failed(l, err)
	})
	if wouldPanic() {
		runtime.Goexit()
	}
}

// wouldPanic reports whether hashicorp/raft has called what failed. It panics over some errors,
// which would end the simulation.
func wouldPanic() bool { return calledBy("github.com/hashicorp/raft.(*Raft)") }

// calledBy reports whether a function with one of these prefixes is among the callers.
func calledBy(functions ...string) bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if slices.ContainsFunc(functions, func(name string) bool { return strings.HasPrefix(f.Function, name) }) {
			return true
		}
		if !more {
			return false
		}
	}
}

// powerOff ends a life at this instant; nil: the current one. The next life finds the disk that
// losePower returns. powerOff reports whether that life was the current one.
func (n *node) powerOff(l *life, rng *rand.Rand, unsynced int) bool {
	n.mu.Lock()
	if n.life == nil || l != nil && n.life != l {
		n.mu.Unlock()
		return false
	}
	l = n.life
	n.life = nil
	n.world.clients.Interrupted()
	before := n.disk
	n.disk = before.losePower(rng, unsynced)
	if lost := before.hit.lost.Load(); lost > 0 {
		n.world.note(n.host, lostPages, "pages", lost)
	}
	n.world.net.Drop(n.host)
	l.end()
	n.mu.Unlock()
	n.world.net.Drop(n.host) // connections that it dialled meanwhile
	n.world.ghosts.Go(l.done.Wait)
	return true
}

// stop ends a life as an operator does: the server closes and leaves nothing unwritten. It reports
// whether it ended a life.
func (n *node) stop() bool {
	n.mu.Lock()
	l := n.life
	if l == nil || l.server == nil {
		n.mu.Unlock()
		return false
	}
	n.mu.Unlock()
	n.world.clients.Interrupted()
	l.close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life != l {
		return false // a loss of power was faster
	}
	// goroutines that the process may have left do nothing more
	n.life, n.disk = nil, n.disk.losePower(nil, killed)
	l.end()
	n.world.ghosts.Go(l.done.Wait)
	return true
}

// serving returns the node's server; nil if it does not serve.
func (n *node) serving() *server.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil {
		return nil
	}
	return n.life.server
}
