package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
	"runlog/server/peer"
	"runlog/server/transfer"
	"runlog/storage"
)

// Options of a Cluster.
type Options struct {
	// Identity of this node. Required.
	Identity Identity
	// Save puts a changed identity on stable storage. Required.
	Save func(Identity) error
	// Listener takes the connections of other nodes. Required; Close closes it.
	Listener net.Listener
	// Dial connects to an address of another node. Default: as peer.Options has it.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS between nodes; nil: none.
	TLS *peer.TLS
	// Advertise is where other nodes reach this one. Default: the listener's address.
	Advertise string
	// GRPC and HTTP are where clients reach this node.
	GRPC, HTTP string
	// Expect is how many nodes found a cluster together; 0 and 1: this one alone, unless Join names
	// others.
	Expect int
	// Join are addresses of other nodes, to found a cluster with or to join one.
	Join []string
	// Version of the build, and the highest feature level that it supports. Default: the core's.
	Version      string
	FeatureLevel uint32
	// ServerOptions of the gRPC server for other nodes, and Register, which adds to its services
	// those that a member may call in a client's place.
	ServerOptions []grpc.ServerOption
	Register      func(*grpc.Server)
	// Encode turns an error into the status that other nodes are told. Required.
	Encode func(error) error
	// Usage tells the free bytes of the disk and those that the node's data takes.
	Usage func() (free, data uint64)
	// Alerts that stand.
	Alerts func() []string
	// SigningKey returns the private part of the key with which the cluster signs, for another
	// member.
	SigningKey func(number uint64) (seed []byte, ok bool)
	// KeepSigningKey keeps one that another member is about to propose.
	KeepSigningKey func(number uint64, seed []byte) error
	// Fail is told why the node cannot go on. Required.
	Fail func(error)
	// Clock is the node's. Default: time.Now.
	Clock func() time.Time
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a registry that nobody reads.
	Registerer prometheus.Registerer
}

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.Advertise == "" {
		o.Advertise = o.Listener.Addr().String()
	}
	if o.FeatureLevel == 0 {
		o.FeatureLevel = storage.CoreLevel
	}
	if o.Register == nil {
		o.Register = func(*grpc.Server) {}
	}
	if o.Usage == nil {
		o.Usage = func() (free, data uint64) { return 0, 0 }
	}
	if o.Alerts == nil {
		o.Alerts = func() []string { return nil }
	}
	if o.SigningKey == nil {
		o.SigningKey = func(uint64) ([]byte, bool) { return nil, false }
	}
	if o.KeepSigningKey == nil {
		o.KeepSigningKey = func(uint64, []byte) error { return errors.ErrUnsupported }
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
}

// Cluster is this node among the others.
type Cluster struct {
	opts    Options
	log     *slog.Logger
	mesh    *peer.Mesh
	raftIn  net.Listener // of the mesh
	server  *grpc.Server
	links   links
	started time.Time

	identity struct {
		sync.Mutex
		Identity
		changed chan struct{} // closed when it changes
	}
	running  atomic.Pointer[running] // nil: the node does not take part yet
	seeding  atomic.Pointer[seeding] // nil: the node is not given the cluster's state
	forming  atomic.Pointer[string]  // what the node waits for that belongs to no cluster
	leaving  atomic.Bool             // the node goes down
	reigns   reigns
	levels   chan struct{} // has room for the one that raises the feature level, or takes a member
	vouched  vouched
	invited  invited
	closing  chan struct{} // has room for the one that moves the clock
	stopping context.Context
	stop     context.CancelFunc
	loops    sync.WaitGroup
	serving  chan struct{} // closed when the gRPC server has ended
}

// drainTimeout is how long answers to other nodes are waited for.
const drainTimeout = time.Second

// running is what a node has that takes part.
type running struct {
	node   *raft.Node
	store  *storage.Store
	source *transfer.Source
}

// seeding is how much of the cluster's state has come, in bytes.
type seeding struct{ have, total atomic.Uint64 }

// New begins to listen for other nodes. Close ends it.
func New(opts Options) (*Cluster, error) {
	opts.EnsureDefaults()
	if err := opts.Identity.Validate(); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	c := &Cluster{opts: opts, log: opts.Logger, started: opts.Clock(), serving: make(chan struct{}), closing: make(chan struct{}, 1), levels: make(chan struct{}, 1)}
	c.identity.Identity, c.identity.changed = opts.Identity, make(chan struct{})
	c.stopping, c.stop = context.WithCancel(context.Background())
	c.mesh = peer.New(peer.Options{
		Listener: opts.Listener, Dial: opts.Dial, TLS: opts.TLS, Self: c.self, Admit: c.admit,
		Logger: opts.Logger, Registerer: opts.Registerer, Clock: opts.Clock,
	})
	c.raftIn = c.mesh.Listener(peer.KindRaft)
	c.links.dial = c.mesh
	c.server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(c.mesh.Credentials()),
		grpc.ChainUnaryInterceptor(c.admitUnary),
		grpc.ChainStreamInterceptor(c.admitStream),
	}, opts.ServerOptions...)...)
	nodev1.RegisterNodeServiceServer(c.server, &service{c: c})
	opts.Register(c.server)
	in := c.mesh.Listener(peer.KindNode)
	go func() {
		defer close(c.serving)
		if err := c.server.Serve(in); err != nil && c.stopping.Err() == nil {
			opts.Fail(fmt.Errorf("cluster: serve other nodes: %w", err))
		}
	}()
	return c, nil
}

// self is what this node says at the beginning of each connection.
func (c *Cluster) self() peer.Identity {
	me := c.Identity()
	id, _ := me.Cluster() // validated
	return peer.Identity{NodeID: me.NodeID, RaftID: me.RaftID(), Cluster: id, Format: Format, Version: c.opts.Version}
}

// Identity returns what the node is now.
func (c *Cluster) Identity() Identity {
	c.identity.Lock()
	defer c.identity.Unlock()
	return c.identity.Identity
}

// change changes the identity, once the change is on stable storage.
func (c *Cluster) change(edit func(*Identity) error) error {
	c.identity.Lock()
	defer c.identity.Unlock()
	next := c.identity.Identity
	if err := edit(&next); err != nil {
		return err
	}
	if err := c.opts.Save(next); err != nil {
		return err
	}
	c.identity.Identity = next
	close(c.identity.changed)
	c.identity.changed = make(chan struct{})
	return nil
}

// changed is closed when the identity is another than when it was asked for.
func (c *Cluster) changed() <-chan struct{} {
	c.identity.Lock()
	defer c.identity.Unlock()
	return c.identity.changed
}

// RaftOptions fills in what Raft needs to reach the other nodes.
func (c *Cluster) RaftOptions(o *raft.Options) {
	me := c.Identity()
	o.NodeID, o.Listener, o.Advertise, o.Founders = me.RaftID(), c.raftIn, c.opts.Advertise, me.Founders
	o.Dial = func(address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(c.stopping, timeout)
		defer cancel()
		return c.mesh.Dial(ctx, peer.KindRaft, address, c.whoAt(address))
	}
	o.AskTerm = c.askTerm
	o.Ask = c.ask
}

// whoAt returns who is expected at an address; empty: nobody in particular.
func (c *Cluster) whoAt(address string) string {
	if r := c.running.Load(); r != nil {
		for _, m := range r.node.Members() {
			if m.Address == address {
				return m.ID
			}
		}
	}
	return ""
}

// CheckData returns an error when the node has taken part, and its data is gone. There says whether
// Raft has begun to keep something in the data directory. It comes before anything is made there:
// what was made would be there the next time.
func (c *Cluster) CheckData(there bool) error {
	me := c.Identity()
	if me.Started && !there {
		return fmt.Errorf("cluster: node %s has taken part in cluster %s, and its data is gone. Restore the data directory; "+
			"or remove the node from the cluster (runlog cluster remove %s), empty the directory and join anew", me.NodeID, me.ClusterID, me.NodeID)
	}
	return nil
}

// Starting notes that the node takes part from now on, so that its data must be there ever after.
// What CheckData asks for is on stable storage.
func (c *Cluster) Starting() error {
	if c.Identity().Started {
		return nil
	}
	return c.change(func(i *Identity) error { i.Started = true; return nil })
}

// Attach says that the node takes part.
func (c *Cluster) Attach(node *raft.Node, store *storage.Store) {
	c.running.Store(&running{node: node, store: store, source: transfer.NewSource(transfer.SourceOptions{
		Node: c.selfID(), Checkpoint: store.Checkpoint, Log: c.log, Encode: c.opts.Encode,
		Hold: func(change int) { node.HoldLog(change > 0) },
	})})
	c.loops.Go(c.enroll)
	c.loops.Go(c.followLeader)
}

// Waiting says what a node waits for that is not ready.
func (c *Cluster) Waiting() string {
	if s := c.seeding.Load(); s != nil {
		return fmt.Sprintf("it is being given the cluster's state: %d of %d MiB", s.have.Load()>>20, s.total.Load()>>20)
	}
	if why := c.forming.Load(); why != nil && c.Identity().ClusterID == "" {
		return "it belongs to no cluster yet: " + *why
	}
	r := c.running.Load()
	if r == nil {
		return "it does not take part in its cluster yet"
	}
	if _, leader := r.node.Leader(); leader == "" {
		return "it knows of no leader"
	}
	return "it is catching up with the leader"
}

// Leave says that the node goes down: others are told, and nothing new is begun.
func (c *Cluster) Leave() { c.leaving.Store(true) }

// Detach ends what the cluster does with the node and the store, which may be closed then. Other
// nodes are answered that this one does not take part.
func (c *Cluster) Detach() {
	hard := time.AfterFunc(drainTimeout, c.server.Stop) // what other nodes are being told
	c.server.GracefulStop()
	hard.Stop()
	c.stop()
	<-c.serving
	c.loops.Wait()
	if r := c.running.Swap(nil); r != nil {
		r.source.Close()
	}
}

// Close ends all connections. The Raft node has been closed.
func (c *Cluster) Close() error {
	c.Detach()
	return errors.Join(c.links.close(), c.mesh.Close())
}
