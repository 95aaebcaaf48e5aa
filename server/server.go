package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/health"

	"runlog/projector"
	"runlog/proto/contract/secrets"
	"runlog/raft"
	"runlog/server/accesslog"
	"runlog/server/audit"
	"runlog/server/budget"
	"runlog/server/cluster"
	"runlog/server/datadir"
	"runlog/server/join"
	"runlog/server/peer"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/storage"
	"runlog/storage/tail"
)

// handOverTimeout bounds the leadership transfer of a stopping leader.
const handOverTimeout = 2 * time.Second

// Server is a running node.
//
// The goroutine of Start makes it, part by part, and notes in closers how each part is closed. A
// field that this goroutine sets is never set again, and needs no lock where it is set before the
// goroutine begins that reads it. Two parts begin to serve before the others are there, because a
// node may wait for its cluster for a long time:
//
//	serveHealth   health pages and metrics: they read disk, stopping and what is atomic
//	openCluster   calls of other nodes: they read gate, disk, alerts and what is atomic; the
//	              cluster lets no other call through before Attach, when all services are open
//
// What these two may meet half made is atomic, and nil until it is there. All other readers begin
// with serve and with the loops, when every field is set.
type Server struct {
	// Set first, before anything serves.

	opts      Options
	log       *slog.Logger // of opts
	dir       *datadir.Dir
	addresses Addresses // where the listeners listen
	clientTLS *clientTLS
	metrics   *rpc.Metrics
	methods   rpc.Methods
	memory    *budget.Budget // of requests and answers
	clients   *clientConns
	disk      *replica.Disk
	lagAlerts prometheus.Counter // only watchLag counts
	// services are registered with the listeners while they are still closed; openServices opens
	// them.
	services []*rpc.Service
	// judgeSecret judges payloads with what looks like a secret.
	judgeSecret func(runID string, kind secrets.Kind) (refuse bool)
	// lateTokens limits what unknown tokens cost. It has a lock of its own.
	lateTokens *rate.Limiter
	// alerts are set by the loops of all parts, and have a lock of their own.
	alerts replica.Alerts

	// Set by openCluster.

	cluster *cluster.Cluster
	gate    *join.Gate // refuses every node until openCore opens it

	// Set by openCore and by what it calls, before Attach and before serve.

	replica   *replica.Replica
	tail      *tail.Tail // of the store, for the projector and the deliveries
	projector *projector.Projector
	accessLog *accesslog.Log // nil: every caller has every right

	// health is set by serve. Afterwards, followReadiness says in it whether the node is ready,
	// until a shutdown ends that.
	health *health.Server

	// What calls may read before it is there. The goroutine of Start stores each once.

	joining atomic.Pointer[cluster.Cluster] // cluster, for health pages
	signer  atomic.Pointer[audit.Signer]    // other nodes ask for its keys
	access  atomic.Pointer[rpc.Access]      // the chain of each listener loads it for each call

	// upToDate: the node leads, or follows a leader and has caught up. Only followReadiness stores
	// it. When it does so for the first time, it closes ready, after it has written addresses.json.
	upToDate atomic.Bool
	ready    chan struct{}

	// The end. undo ends stopping, joins loops, and then calls closers, last first, so that each
	// part closes before those that it needs. Only the goroutine of Start adds closers, and only
	// that of Start, if it fails, or of Close calls undo.

	stopping context.Context
	stop     context.CancelFunc
	loops    sync.WaitGroup
	closers  []func() error
}

// Addresses are the addresses on which a node serves. They are written to addresses.json in its
// data directory.
type Addresses struct {
	GRPC  string `json:"grpc"`
	HTTP  string `json:"http"`
	Admin string `json:"admin"`
	// Metrics is empty if Options.MetricsListen is.
	Metrics string `json:"metrics,omitempty"`
	Raft    string `json:"raft"`
}

// Start opens the data directory and serves. It returns once all listeners answer. A node of a
// larger cluster first waits until it is a member and has the state, as long as ctx lasts. The node
// takes appends when WaitReady returns.
func Start(ctx context.Context, opts Options) (*Server, error) { return start(ctx, opts, services) }

// start starts a node that serves a table of services.
func start(ctx context.Context, opts Options, table []service) (*Server, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		opts: opts, log: opts.Logger, ready: make(chan struct{}),
		lateTokens: rate.NewLimiter(lateTokensASecond, lateTokensASecond),
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	if err := s.start(ctx, table); err != nil {
		return nil, errors.Join(err, s.undo())
	}
	if why := rpc.HeldReason(s.replica.Store()); why != "" {
		s.log.Warn("cluster is held; no run is leased and no event is delivered", "why", why)
	}
	s.loops.Go(s.followReadiness)
	s.loops.Go(s.watchLag)
	s.loops.Go(s.watchDrains)
	s.loops.Go(func() { s.disk.Watch(s.stopping) })
	if s.accessLog != nil {
		s.loops.Go(func() { s.accessLog.Run(s.stopping) })
	}
	s.loops.Go(func() { s.cluster.KeepLevel(s.stopping, s.replica.Submit) })
	return s, nil
}

func (s *Server) onClose(f func() error) { s.closers = append(s.closers, f) }

// undo closes what is open, last first.
func (s *Server) undo() error {
	s.stop()
	s.loops.Wait()
	var errs []error
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	s.closers = nil
	return errors.Join(errs...)
}

func (s *Server) start(ctx context.Context, table []service) error {
	// First, because a node has the name in its certificate from the beginning.
	tls, nodeID, err := s.loadTLS()
	if err != nil {
		return err
	}
	if err := s.opts.CheckExposure(); err != nil {
		return err
	}
	s.warnOfExposure()
	if s.clientTLS, err = s.opts.loadClientTLS(s.log); err != nil {
		return err
	}
	if s.dir, err = datadir.Open(s.opts.FS, s.opts.DataDir, nodeID); err != nil {
		return err
	}
	s.onClose(s.dir.Release)
	s.metrics = rpc.NewMetrics(s.opts.Registry)
	s.onClose(func() error { s.metrics.Unregister(s.opts.Registry); return nil })
	s.memory, s.clients = budget.New(s.opts.MemoryBytes/memoryShare), newClientConns()
	for _, m := range s.memory.Collectors() {
		s.register(m)
	}
	s.lagAlerts = newLagAlerts()
	s.register(s.lagAlerts)
	s.register(newBuildInfo(&s.opts))
	scan := newSecretScan(s.opts.SecretScan, s.log)
	s.register(scan.counts)
	s.judgeSecret = scan.judge
	s.disk = replica.NewDisk(replica.DiskOptions{
		FS: s.opts.FS, Dir: s.opts.DataDir, Free: s.opts.DiskFree, MinFreeBytes: s.opts.MinFreeBytes,
		Alerts: &s.alerts, Logger: s.log, Registry: s.opts.Registry,
	})
	s.onClose(s.disk.Close)
	s.services = registrations(table)
	if s.methods, err = rpc.NewMethods(s.services); err != nil {
		return err
	}
	listeners, err := s.listen()
	if err != nil {
		s.dir.Discard()
		return err
	}
	listeners = s.bound(listeners)
	pages := s.serveHealth(listeners)
	if err := s.openCluster(listeners.raft, tls); err != nil {
		return err
	}
	if err := s.cluster.Form(ctx); err != nil {
		return err
	}
	if err := s.openCore(ctx, table); err != nil {
		return err
	}
	return s.serve(listeners, pages)
}

// register registers a metric until the node closes.
func (s *Server) register(m prometheus.Collector) {
	s.opts.Registry.MustRegister(m)
	s.onClose(func() error { s.opts.Registry.Unregister(m); return nil })
}

// loadTLS loads the node's certificate, if the options name one, and returns the node's name;
// empty: none is given.
func (s *Server) loadTLS() (tls *peer.TLS, nodeID string, err error) {
	t, nodeID := s.opts.TLS, s.opts.NodeID
	if t == (TLSFiles{}) {
		return nil, nodeID, nil
	}
	if tls, err = peer.LoadTLS(t.CA, t.Cert, t.Key, s.opts.Clock); err != nil {
		// The cause is text only, because advice about the data directory would be wrong.
		return nil, "", fmt.Errorf("%s; name PEM files that this user can read with --node-ca, --node-cert and --node-key "+
			"(runlog cluster certs makes them)", err.Error())
	}
	if nodeID != "" && nodeID != tls.NodeID() {
		return nil, "", fmt.Errorf("--node-cert %s belongs to node %q, but --node-id is %q: "+
			"give each node its own certificate (runlog cluster certs)", t.Cert, tls.NodeID(), nodeID)
	}
	return tls, tls.NodeID(), nil
}

// openCore opens the replica and its readers, and attaches the node to its cluster.
func (s *Server) openCore(ctx context.Context, table []service) (err error) {
	o := &s.opts
	s.replica, err = replica.Open(ctx, replica.Options{
		DataDir: s.dir.Path(), RaftDir: s.dir.File("raft"), StoreDir: s.dir.File("store"),
		Cluster: s.cluster, Disk: s.disk, Alerts: &s.alerts, Store: o.Store, Raft: o.Raft,
		GRPCAddress: advertised(o.GRPCAdvertise, s.addresses.GRPC), QueueBytes: o.QueueBytes, Memory: s.memory,
		LeaderWait: o.LeaderWait, MaxWait: o.MaxWait, ClockSkewLimit: o.ClockSkewLimit, MaxClockAhead: o.MaxClockAhead,
		FS: o.FS, Clock: o.Clock, Monotonic: o.Monotonic, Logger: s.log, Registry: o.Registry,
		Stopping: s.stopping, Fail: o.Fail,
	})
	if err != nil {
		return err
	}
	s.onClose(s.replica.Close)
	s.register(s.newDrainTimeouts())
	s.register(s.newHeldSince())
	s.tail = tail.New(tail.Options{Store: s.replica.Store(), Bytes: o.MemoryBytes / tailShare})
	s.onClose(s.tail.Close)
	s.projector, err = projector.Open(projector.Options{
		Dir: s.dir.File("projection"), FS: o.FS, Store: s.replica.Store(), Tail: s.tail,
		Cluster: s.replica.ClusterID(), Clock: s.replica.Stamps().Now,
		CacheBytes: int(o.MemoryBytes / 8), OpenFiles: o.Store.OpenFiles,
		Logger: s.log, Registerer: o.Registry, Fail: o.Fail,
	})
	if err != nil {
		return err
	}
	s.onClose(s.projector.Close)
	s.replica.Limits().Measure(tenantUsage{s.projector})
	signer := audit.NewSigner(audit.SignerOptions{
		Replica: s.replica, Cluster: s.cluster, Records: s.projector, KeyFile: s.dir.File(datadir.KeyFile), FS: o.FS,
		Interval: o.CheckpointInterval, Events: o.CheckpointEvents, Alerts: &s.alerts, Clock: s.replica.Stamps().Now,
		Logger: s.log, Registry: o.Registry, Stopping: s.stopping,
	})
	s.signer.Store(signer)
	s.onClose(signer.Close)
	s.openWitnesses(signer)
	if err := s.openAuthentication(); err != nil {
		return err
	}
	s.openServices(table)
	s.gate.Open(s.replica)
	s.cluster.Attach(s.replica.Node(), s.replica.Store(), s.projector)
	s.onClose(func() error { s.cluster.Detach(); return nil })
	return nil
}

// goServe runs a server until it is shut down. A server that ends by itself is a failure of the
// node.
func (s *Server) goServe(name string, serve func() error) {
	go func() {
		err := serve()
		if err != nil && s.stopping.Err() == nil && !errors.Is(err, http.ErrServerClosed) && !isStopped(err) {
			s.opts.Fail(fmt.Errorf("server: %s listener: %w", name, err))
		}
	}()
}

// Addresses returns the addresses on which the node serves.
func (s *Server) Addresses() Addresses { return s.addresses }

// NodeID returns the node's name.
func (s *Server) NodeID() string { return s.cluster.Identity().NodeID }

// Applied returns the applied index and the rolling hash of everything that the node has applied.
// At one index, the hash is equal on all nodes.
func (s *Server) Applied() storage.Applied { return s.replica.Store().Applied() }

// Ready reports whether the node can take appends: it leads, or follows a leader and has caught up.
func (s *Server) Ready() bool {
	return s.stopping.Err() == nil && s.upToDate.Load() && s.disk.Refusal() == nil
}

// WaitReady returns once the node has served for the first time, or with the context's error.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close transfers the leadership, drains and stops the node: streams end, calls in flight are
// answered, then the projector, Raft and the store close in that order (D13).
func (s *Server) Close() error {
	s.health.Shutdown()
	s.cluster.Leave()
	s.handOver()
	return s.undo()
}

// handOver makes another voter the leader, if there is one, so that clients need not wait for an
// election.
func (s *Server) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	err := s.cluster.Transfer(ctx, "")
	if err != nil && !errors.Is(err, raft.ErrNotLeader) && !errors.Is(err, cluster.ErrAlone) {
		s.log.Warn("leadership transfer failed; leaving the election to others", "err", err)
	}
}
