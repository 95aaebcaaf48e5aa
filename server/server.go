package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"runlog/projector"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/checkpoint"
	"runlog/server/cluster"
	"runlog/server/peer"
	"runlog/server/replica/batch"
	"runlog/server/rpc/decode"
	"runlog/storage"
)

const (
	// drainTimeout is how long Close waits for calls under way, first those over HTTP, then those
	// over gRPC, of the 10 s that a stop may take.
	drainTimeout = 3 * time.Second
	// handOverTimeout bounds how long a stopping leader tries to hand its leadership over.
	handOverTimeout = 2 * time.Second
	// gatewayBuffer of the in-memory connection between gateway and gRPC server.
	gatewayBuffer = 1 << 20
	// maxConcurrentStreams of one gRPC connection.
	maxConcurrentStreams = 10_000
	// streamWorkers take calls; those beyond get goroutines of their own.
	streamWorkers = 512
	// Flow control of gRPC connections, in bytes: of one call, and of a connection.
	streamWindow = 1 << 20
	connWindow   = 8 << 20
	connBuffer   = 64 << 10
	// maxGatewayStreams leaves the gateway's connection room for calls that are no streams.
	maxGatewayStreams = maxConcurrentStreams - 1000
	// idleTimeout of a connection that waits for its next HTTP request.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes is room for what browsers and proxies add to a request.
	maxHeaderBytes = 64 << 10
)

// Server is a running node.
type Server struct {
	opts      Options
	log       *slog.Logger
	metrics   *metrics
	dir       *dataDir
	clusterID storage.ClusterID
	cluster   *cluster.Cluster
	joining   atomic.Pointer[cluster.Cluster] // the same, for who asks before the node serves
	store     *storage.Store
	node      *raft.Node
	projector *projector.Projector
	batcher   *batch.Batcher
	sealer    atomic.Pointer[checkpoint.Sealer] // other nodes may ask before there is one
	health    *health.Server
	addresses Addresses
	encodings encodings
	exports   atomic.Int64 // that are under way

	inflight inflight
	held     atomic.Int64 // bytes of events that wait for their answer
	// what appends are told while the disk is nearly full; nil: taken
	diskLow  atomic.Pointer[contract.Error]
	data     atomic.Uint64 // bytes below the data directory
	backups  atomic.Int64  // that are being made
	alerts   alerts
	keyGone  atomic.Bool   // AUDIT_KEY_MISSING stands
	upToDate atomic.Bool   // the node leads, or follows a leader and has caught up
	ready    chan struct{} // closed once the node has served for the first time
	stopping context.Context
	stop     context.CancelFunc
	loops    sync.WaitGroup
	sends    sync.WaitGroup // of events to watchers; they end with their calls
	watches  *dispatcher    // of watermarks and snapshots to watchers of one run
	closers  []func() error // what Close undoes, last first
}

// Addresses are where a node serves. They are written to addresses.json in its data directory.
type Addresses struct {
	GRPC  string `json:"grpc"`
	HTTP  string `json:"http"`
	Admin string `json:"admin"`
	Raft  string `json:"raft"`
}

// Start opens the data directory and serves. It returns once all listeners answer, which for a node
// that is to be one of several is when it belongs to a cluster and has its state: it waits for
// other nodes as long as ctx lasts. The node takes appends when WaitReady returns.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	s := &Server{opts: opts, log: opts.Logger, ready: make(chan struct{})}
	s.encodings.limit = int(opts.MemoryBytes / 32)
	s.stopping, s.stop = context.WithCancel(context.Background())
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.undo())
	}
	s.loops.Go(s.followReadiness)
	s.loops.Go(s.watchClock)
	s.loops.Go(s.watchLag)
	s.loops.Go(s.watchDisk)
	s.loops.Go(func() { s.cluster.KeepLevel(s.stopping, s.proposeCommand) })
	return s, nil
}

func (s *Server) onClose(f func() error) { s.closers = append(s.closers, f) }

// undo takes down what was put up, last first.
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

func (s *Server) start(ctx context.Context) error {
	// First: a node has the name that its certificate says, from the beginning.
	tls, nodeID, err := s.loadTLS()
	if err != nil {
		return err
	}
	dir, err := openDataDir(s.opts.FS, s.opts.DataDir, nodeID)
	if err != nil {
		return err
	}
	s.dir = dir
	s.onClose(dir.release)
	s.metrics = newMetrics(s.opts.Registry)
	s.onClose(func() error { s.metrics.unregister(s.opts.Registry); return nil })
	listeners, err := s.listen()
	if err != nil {
		return err
	}
	admin := s.serveAdmin(listeners.admin)
	if err := s.openCluster(listeners.raft, tls); err != nil {
		return err
	}
	if err := s.cluster.Form(ctx); err != nil {
		return err
	}
	if err := s.openCore(ctx); err != nil {
		return err
	}
	return s.serve(listeners, admin)
}

type listeners struct{ grpc, http, admin, raft net.Listener }

// listen takes all ports before anything is opened, so that a port in use stops a node early.
func (s *Server) listen() (l listeners, err error) {
	for _, a := range []struct {
		flag, address string
		to            *net.Listener
		bound         *string
	}{
		{"--grpc-listen", s.opts.GRPCListen, &l.grpc, &s.addresses.GRPC},
		{"--http-listen", s.opts.HTTPListen, &l.http, &s.addresses.HTTP},
		{"--admin-listen", s.opts.AdminListen, &l.admin, &s.addresses.Admin},
		{"--raft-listen", s.opts.RaftListen, &l.raft, &s.addresses.Raft},
	} {
		ln, err := s.opts.Listen("tcp", a.address)
		if errors.Is(err, syscall.EADDRINUSE) {
			return l, fmt.Errorf("%s %s: the port is in use; stop what uses it, or choose another (port 0 picks a free one)", a.flag, a.address)
		}
		if err != nil {
			return l, fmt.Errorf("%s: %w", a.flag, err)
		}
		*a.to, *a.bound = ln, ln.Addr().String()
		s.onClose(func() error { return ignoreClosed(ln.Close()) })
	}
	return l, nil
}

// ignoreClosed forgives a listener that its server has closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// loadTLS loads the node's certificate, where there is to be one, and returns the node's name, if
// it is told one.
func (s *Server) loadTLS() (tls *peer.TLS, nodeID string, err error) {
	t, nodeID := s.opts.TLS, s.opts.NodeID
	if t == (TLSFiles{}) {
		return nil, nodeID, nil
	}
	if tls, err = peer.LoadTLS(t.CA, t.Cert, t.Key, s.opts.Clock); err != nil {
		return nil, "", err
	}
	if nodeID != "" && nodeID != tls.NodeID() {
		return nil, "", fmt.Errorf("--node-cert %s is that of node %q, and --node-id says %q: give each node its own (runlog cluster certs)",
			t.Cert, tls.NodeID(), nodeID)
	}
	return tls, tls.NodeID(), nil
}

// openCluster begins to talk to other nodes.
func (s *Server) openCluster(listener net.Listener, tls *peer.TLS) (err error) {
	guard := decode.NewGuard(s.limits(), statusOf)
	s.cluster, err = cluster.New(cluster.Options{
		Identity: s.dir.identity.Identity, Save: s.dir.save, Listener: listener, Dial: s.opts.Dial, TLS: tls,
		Advertise: s.opts.RaftAdvertise, GRPC: s.advertised(s.opts.GRPCAdvertise, s.addresses.GRPC),
		HTTP: s.advertised(s.opts.HTTPAdvertise, s.addresses.HTTP), Expect: s.opts.BootstrapExpect, Join: s.opts.Join,
		Version: s.opts.Version, FeatureLevel: s.opts.Store.FeatureLevel, ServerOptions: slices.Concat(guard.ServerOptions(), s.transportOptions()),
		Register: func(g *grpc.Server) { s.registerForwarded(guard.Register(g)) },
		Encode:   statusOf, Usage: s.usage, Alerts: s.alerts.standing, SigningKey: s.signingKey, KeepSigningKey: s.keepSigningKey,
		Fail: s.opts.Fail, Clock: s.opts.Clock, Logger: s.log, Registerer: s.opts.Registry,
	})
	if err == nil {
		s.joining.Store(s.cluster)
		s.onClose(s.cluster.Close)
	}
	return err
}

// advertised is where clients reach a listener.
func (s *Server) advertised(asked, bound string) string {
	if asked != "" {
		return asked
	}
	return bound
}

// openCore puts up storage, Raft, the projector and the batcher.
func (s *Server) openCore(ctx context.Context) (err error) {
	me := s.cluster.Identity()
	if s.clusterID, err = me.Cluster(); err != nil {
		return err
	}
	made, err := raft.Made(s.opts.FS, s.dir.file("raft"))
	if err == nil {
		err = s.cluster.CheckData(made)
	}
	if err != nil {
		return err
	}
	storeOpts := s.opts.Store
	storeOpts.FS, storeOpts.Dir, storeOpts.Cluster = s.opts.FS, s.dir.file("store"), s.clusterID
	storeOpts.Logger, storeOpts.Registerer, storeOpts.Fail = s.log, s.opts.Registry, s.opts.Fail
	if s.store, err = storage.Open(storeOpts); err != nil {
		return err
	}
	s.onClose(s.store.Close)
	if err := s.cluster.EnsureState(ctx, s.store); err != nil {
		return err
	}
	if !made {
		if err := raft.Make(s.opts.FS, s.dir.file("raft")); err != nil {
			return err
		}
	}
	if err := s.cluster.Starting(); err != nil {
		return err
	}
	s.projector, err = projector.Open(projector.Options{
		Dir: s.dir.file("projection"), FS: s.opts.FS, Store: s.store, Cluster: s.clusterID, Clock: s.opts.Clock, CacheBytes: int(s.opts.MemoryBytes / 8),
		Logger: s.log, Registerer: s.opts.Registry, Fail: s.opts.Fail,
	})
	if err != nil {
		return err
	}
	s.onClose(s.projector.Close)
	return s.openRaft()
}

// openRaft puts up Raft and the batcher, and makes the node one of its cluster.
func (s *Server) openRaft() (err error) {
	raftOpts := s.opts.Raft
	raftOpts.FS, raftOpts.Dir = s.opts.FS, s.dir.file("raft")
	raftOpts.Store, raftOpts.Logger, raftOpts.Registerer, raftOpts.Fail = s.store, s.log, s.opts.Registry, s.opts.Fail
	s.cluster.RaftOptions(&raftOpts)
	if s.node, err = raft.Start(raftOpts); err != nil {
		return err
	}
	s.onClose(s.node.Close)
	s.batcher = batch.New(batch.Options{
		Propose: s.node.Propose, Cluster: s.clusterID, Clock: s.opts.Clock, QueueBytes: s.opts.QueueBytes,
		Registerer: s.opts.Registry, Check: s.store.CheckLevel,
	})
	s.onClose(func() error { s.batcher.Close(); return nil })
	s.openSealer()
	s.cluster.Attach(s.node, s.store)
	s.onClose(func() error { s.cluster.Detach(); return nil })
	return nil
}

// serve puts up the gRPC server and the gateway, and completes the admin listener.
func (s *Server) serve(l listeners, admin *atomic.Pointer[http.Handler]) error {
	s.health = health.NewServer()
	s.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	g := s.newGRPCServer()
	inner := bufconn.Listen(gatewayBuffer)
	s.watches = newDispatcher(s.opts.Heartbeat)
	s.onClose(func() error { s.watches.close(); s.sends.Wait(); return nil })
	s.onClose(func() error { return s.inflight.drain(g) })
	conn, err := s.dialGateway(inner)
	if err != nil {
		return fmt.Errorf("server: gateway: %w", err)
	}
	s.onClose(conn.Close)
	gateway, err := newGateway(s.stopping, conn, s.limits())
	if err != nil {
		return err
	}
	public := &http.Server{Handler: s.publicHandler(gateway), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}
	s.onClose(func() error { return drainHTTP(public) })
	whole := s.adminHandler()
	admin.Store(&whole)
	s.goServe("grpc", func() error { return g.Serve(l.grpc) })
	s.goServe("gateway", func() error { return g.Serve(inner) })
	s.goServe("http", func() error { return public.Serve(l.http) })
	// Closers run last first: streams end and new calls stop before anything else goes.
	s.onClose(func() error { s.health.Shutdown(); return nil })
	return nil
}

func (s *Server) limits() decode.Limits { return decode.Limits{Bytes: s.opts.MaxRequestBytes} }

func (s *Server) newGRPCServer() *grpc.Server {
	guard := decode.NewGuard(s.limits(), statusOf)
	g := grpc.NewServer(slices.Concat(guard.ServerOptions(), s.transportOptions(), []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.inflight.unary, s.metrics.unary),
		grpc.ChainStreamInterceptor(s.inflight.stream, s.metrics.stream),
	}, s.opts.GRPC)...)
	guarded := guard.Register(g)
	runlogv1.RegisterRunServiceServer(guarded, &runService{s: s})
	runlogv1.RegisterEventServiceServer(guarded, &eventService{s: s})
	runlogv1.RegisterProjectionServiceServer(guarded, &projectionService{s: s})
	runlogv1.RegisterAuditServiceServer(guarded, &auditService{s: s})
	runlogv1.RegisterClusterServiceServer(guarded, &clusterService{s: s})
	grpc_health_v1.RegisterHealthServer(g, s.health)
	return g
}

// registerForwarded registers what other nodes pass on to this one when it leads.
func (s *Server) registerForwarded(guarded grpc.ServiceRegistrar) {
	runlogv1.RegisterRunServiceServer(guarded, &runService{s: s})
	runlogv1.RegisterEventServiceServer(guarded, &eventService{s: s})
	runlogv1.RegisterClusterServiceServer(guarded, &clusterService{s: s})
	runlogv1.RegisterAuditServiceServer(guarded, &auditService{s: s})
}

// transportOptions are those of the gRPC servers for clients and for other nodes.
func (s *Server) transportOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxConcurrentStreams),
		// Goroutines that have grown their stack once serve many calls.
		grpc.NumStreamWorkers(streamWorkers),
		// A batch of events fits into a window, and a connection may have many under way: flow
		// control by gRPC's own 64 KiB would make each batch wait for an update.
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(connBuffer),
		grpc.WriteBufferSize(connBuffer),
		// A connection that says nothing holds up even a hard stop for so long.
		grpc.ConnectionTimeout(drainTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}

// dialGateway makes the connection over which the gateway calls the gRPC server behind inner.
func (s *Server) dialGateway(inner *bufconn.Listener) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:gateway",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inner.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(structUnary),
		grpc.WithChainStreamInterceptor(make(gatewayStreams, maxGatewayStreams).open),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(s.opts.MaxRequestBytes*2), grpc.MaxCallSendMsgSize(s.limits().Transport())),
	)
}

// goServe runs a server until it is shut down. One that ends by itself is a failure.
func (s *Server) goServe(name string, serve func() error) {
	go func() {
		err := serve()
		if err != nil && s.stopping.Err() == nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
			s.opts.Fail(fmt.Errorf("server: %s listener: %w", name, err))
		}
	}()
}

func drainHTTP(h *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := h.Shutdown(ctx); err != nil {
		return h.Close()
	}
	return nil
}

// Addresses returns where the node serves.
func (s *Server) Addresses() Addresses { return s.addresses }

// NodeID returns the node's name.
func (s *Server) NodeID() string { return s.cluster.Identity().NodeID }

// Ready says whether the node can take appends: it leads, or follows a leader and has caught up.
func (s *Server) Ready() bool {
	return s.stopping.Err() == nil && s.upToDate.Load() && s.diskLow.Load() == nil
}

// WaitReady returns once the node has taken up its work, or with the context's error.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close hands the leadership over, drains and stops the node: streams end, calls under way are
// answered, then Raft, the projector and the store go down in that order (D13).
func (s *Server) Close() error {
	s.health.Shutdown()
	s.cluster.Leave()
	s.handOver()
	return s.undo()
}

// handOver makes another node the leader, where there is one, so that nobody has to wait for an
// election.
func (s *Server) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	if err := s.cluster.Transfer(ctx, ""); err != nil && !errors.Is(err, raft.ErrNotLeader) && !errors.Is(err, cluster.ErrAlone) {
		s.log.Warn("the leadership was not handed over, the others will elect a leader", "err", err)
	}
}
