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
	"runlog/raft/witness"
	"runlog/server/cluster/admission"
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
	// Dial connects to an address of another node. Default: as in peer.Options.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS between nodes; nil: none.
	TLS *peer.TLS
	// Advertise is this node's address for other nodes. Default: the listener's address.
	Advertise string
	// GRPC and HTTP are this node's addresses for clients.
	GRPC, HTTP string
	// Expect is how many nodes found a cluster together; 0 and 1: this one alone, unless Join names
	// others.
	Expect int
	// Join are addresses of other nodes, to found a cluster with or to join one.
	Join []string
	// JoinToken is what this node joins a cluster with, where nodes have no certificates; empty: it
	// must be invited. Admission decides which other nodes may join. Required; with TLS it is not
	// asked, because certificates admit.
	JoinToken string
	Admission admission.Gate
	// Version of the build, and the highest feature level that it supports. Default: the core's.
	Version      string
	FeatureLevel uint32
	// ServerOptions of the gRPC server for other nodes. Register adds the services that a member
	// may call on behalf of a client.
	ServerOptions []grpc.ServerOption
	Register      func(*grpc.Server)
	// Encode turns an error into a status for other nodes. Required.
	Encode func(error) error
	// Usage returns the free bytes of the disk and the size of the node's data.
	Usage func() (free, data uint64)
	// Alerts that stand.
	Alerts func() []string
	// SigningKey returns the private part of the cluster's signing key, for another member.
	SigningKey func(number uint64) (seed []byte, ok bool)
	// KeepSigningKey stores a key that another member is about to propose.
	KeepSigningKey func(number uint64, seed []byte) error
	// Fail is called with the reason when the node cannot continue. Required.
	Fail func(error)
	// Clock is that of the node. Default: time.Now.
	Clock func() time.Time
	// Logger. Default: discards.
	Logger *slog.Logger
	// Registerer of metrics. Default: a private registry.
	Registerer prometheus.Registerer
}

// EnsureDefaults sets the defaults of unset fields.
func (o *Options) EnsureDefaults() {
	if o.Advertise == "" {
		o.Advertise = o.Listener.Addr().String()
	}
	if o.FeatureLevel == 0 {
		o.FeatureLevel = storage.CoreLevel
	}
	if o.TLS != nil {
		o.Admission = admission.Certified{}
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
//
// It serves the calls of other nodes from New on, long before the node takes part. So a function of
// a call loads running once, and answers that the node is not there while it is nil. The loops need
// not look: Detach waits for their ends before it takes running away.
type Cluster struct {
	// Set by New, and never again. Each part has locks of its own.

	opts    Options
	log     *slog.Logger
	mesh    *peer.Mesh
	raftIn  net.Listener // of the mesh
	server  *grpc.Server
	links   links
	started time.Time

	// identity changes when it is on stable storage: the lock is held while it is being saved.
	identity struct {
		sync.Mutex
		Identity
		changed chan struct{} // closed, and replaced, when it changes
	}

	// running is what takes part. Attach stores it, and Detach takes it out; nil before and after.
	running atomic.Pointer[running]
	// witness answers the nodes that start before this one takes part. The start of Raft stores it,
	// before it asks others the same.
	witness atomic.Pointer[witness.Witness]
	arrived chan struct{} // has room for one: a member has started
	// receiving is the progress of a state transfer, during it; nil: there is none.
	receiving atomic.Pointer[received]
	// forming is what a node that does not take part yet waits for. The goroutine that starts the
	// node stores it, for health pages.
	forming atomic.Pointer[string]
	leaving atomic.Bool // the node shuts down; nothing clears it

	lead    leaderships // the current leadership, as callers have found it
	vouched vouched     // of other members, for nodes that this one does not know yet
	invited invited     // nodes, until they join
	roots   *roots      // of the tree of records

	// Mutexes with room for one, whose holders wait for other nodes.

	levels  chan struct{} // while the feature level rises or a member joins
	closing chan struct{} // while the clock is moved

	// Detach stops the server, ends stopping, and joins serving and loops.

	stopping context.Context
	stop     context.CancelFunc
	loops    sync.WaitGroup
	serving  chan struct{} // closed when the gRPC server has ended
}

// drainTimeout is how long answers to other nodes are waited for.
const drainTimeout = time.Second

// running is the state of a node that takes part.
type running struct {
	node   *raft.Node
	store  *storage.Store
	source *transfer.Source
	tree   Tree
}

// received is the progress of a state transfer, in bytes.
type received struct{ have, total atomic.Uint64 }

// New begins to listen for other nodes. Close ends it.
func New(opts Options) (*Cluster, error) {
	opts.EnsureDefaults()
	if err := opts.Identity.Validate(); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	c := &Cluster{
		opts: opts, log: opts.Logger, started: opts.Clock(), serving: make(chan struct{}),
		closing: make(chan struct{}, 1), arrived: make(chan struct{}, 1), levels: make(chan struct{}, 1),
		roots: newRoots(opts.Registerer),
	}
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
		if err := c.server.Serve(in); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			opts.Fail(fmt.Errorf("cluster: serve peers: %w", err))
		}
	}()
	return c, nil
}

// self is this node's greeting on each connection.
func (c *Cluster) self() peer.Identity {
	me := c.Identity()
	id, _ := me.Cluster() // validated
	return peer.Identity{NodeID: me.NodeID, RaftID: me.RaftID(), Cluster: id, Format: Format, Version: c.opts.Version}
}

// Identity returns the current identity.
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

// changed returns a channel that is closed when the identity changes.
func (c *Cluster) changed() <-chan struct{} {
	c.identity.Lock()
	defer c.identity.Unlock()
	return c.identity.changed
}

// RaftOptions sets the options that Raft needs to reach the other nodes. Options.Store is set.
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
	o.Meet = c.meetFirst(o.Store)
}

// whoAt returns the node expected at an address; empty: any node.
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

// CheckData returns an error if the node has taken part and its data is gone. there reports whether
// the data directory has Raft state. Call it before anything is created there: the next start would
// find that.
func (c *Cluster) CheckData(there bool) error {
	me := c.Identity()
	if me.Started && !there {
		return storage.Damage(fmt.Errorf("cluster: node %s has taken part in cluster %s, and its data is gone: the directory raft has no log", me.NodeID, me.ClusterID))
	}
	return nil
}

// Starting records durably that the node takes part: from now on CheckData requires its data.
func (c *Cluster) Starting() error {
	if c.Identity().Started {
		return nil
	}
	return c.change(func(i *Identity) error { i.Started = true; return nil })
}

// wait sets what a node that does not take part yet waits for; empty: nothing.
func (c *Cluster) wait(why string) { c.forming.Store(&why) }

// Attach makes the node take part: it enrolls, follows the leader, sends checkpoints, and compares
// its tree of records with those of the others.
func (c *Cluster) Attach(node *raft.Node, store *storage.Store, tree Tree) {
	c.running.Store(&running{node: node, store: store, tree: tree, source: transfer.NewSource(transfer.SourceOptions{
		Node: c.selfID(), Checkpoint: store.Checkpoint, Log: c.log, Encode: c.opts.Encode,
		Hold: func(change int) { node.KeepLog(change > 0) },
	})})
	c.witness.Store(node.Witness())
	c.loops.Go(c.enroll)
	c.loops.Go(c.followLeader)
	c.loops.Go(c.keepMeeting)
	c.loops.Go(c.compareRoots)
}

// Waiting returns what a node that is not ready waits for.
func (c *Cluster) Waiting() string {
	if s := c.receiving.Load(); s != nil {
		return fmt.Sprintf("it is being given the cluster's state: %d of %d MiB", s.have.Load()>>20, s.total.Load()>>20)
	}
	r := c.running.Load()
	if r == nil {
		what := "it belongs to no cluster yet"
		if c.Identity().ClusterID != "" {
			what = "it does not take part in its cluster yet"
		}
		if why := c.forming.Load(); why != nil && *why != "" {
			return what + ": " + *why
		}
		return what
	}
	if _, leader := r.node.Leader(); leader == "" {
		return "it knows of no leader"
	}
	return "it is catching up with the leader"
}

// Leave announces the shutdown to other nodes, and starts nothing new.
func (c *Cluster) Leave() { c.leaving.Store(true) }

// Detach releases the node and the store, which may be closed then. Other nodes get the answer that
// this one does not take part.
func (c *Cluster) Detach() {
	hard := time.AfterFunc(drainTimeout, c.server.Stop) // answers may be under way
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
	c.opts.Registerer.Unregister(c.roots.voters)
	return errors.Join(c.links.close(), c.mesh.Close())
}
