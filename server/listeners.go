package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"runlog/server/admin"
	"runlog/server/cluster"
	"runlog/server/gateway"
	"runlog/server/join"
	"runlog/server/peer"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
)

const (
	// streamWorkers is the number of goroutines that take calls. Calls beyond them get goroutines
	// of their own.
	streamWorkers = 512
	// Flow control windows of gRPC, in bytes, of one call and of a connection.
	streamWindow = 1 << 20
	connWindow   = 8 << 20
	connBuffer   = 32 << 10
	// idleTimeout ends a connection that waits for its next HTTP request.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes has room for the headers that browsers and proxies add to a request.
	maxHeaderBytes = 64 << 10
)

// listeners of a node. That of metrics may be nil.
type listeners struct{ grpc, http, admin, metrics, raft net.Listener }

// listen opens all ports before anything else is opened, so that a port in use stops a node early.
func (s *Server) listen() (l listeners, err error) {
	for _, a := range []struct {
		flag, address string
		to            *net.Listener
		bound         *string
	}{
		{"--grpc-listen", s.opts.GRPCListen, &l.grpc, &s.addresses.GRPC},
		{"--http-listen", s.opts.HTTPListen, &l.http, &s.addresses.HTTP},
		{"--admin-listen", s.opts.AdminListen, &l.admin, &s.addresses.Admin},
		{"--metrics-listen", s.opts.MetricsListen, &l.metrics, &s.addresses.Metrics},
		{"--raft-listen", s.opts.RaftListen, &l.raft, &s.addresses.Raft},
	} {
		if a.address == "" {
			continue
		}
		ln, err := s.opts.Listen("tcp", a.address)
		if errors.Is(err, syscall.EADDRINUSE) {
			return l, fmt.Errorf("%s %s: the port is in use; stop what uses it, or choose another (port 0 picks a free one)", a.flag, a.address)
		}
		if err != nil {
			return l, fmt.Errorf("%s %s: %w; name an address of this machine and a port that this user may take", a.flag, a.address, err)
		}
		*a.to, *a.bound = ln, ln.Addr().String()
		s.onClose(func() error { return ignoreClosed(ln.Close()) })
	}
	return l, nil
}

// bound bounds the connections of clients, so that memory and files are left for the node's work.
func (s *Server) bound(l listeners) listeners {
	clients, admins := clientConnections(s.opts.MemoryBytes, s.opts.OpenFiles), 0
	if s.opts.OpenFiles > 0 {
		admins = adminConnections
	}
	if s.opts.OpenFiles > 0 && s.opts.OpenFiles < fewFiles {
		s.log.Warn("few open files are allowed; clients get few connections", "limit", s.opts.OpenFiles, "connections", clients,
			"remedy", fmt.Sprintf("raise the limit to %d or more (ulimit -n)", fewFiles))
	}
	bound := func(name string, limit int) func(net.Listener) net.Listener {
		c, unregister := newConnections(name, limit, s.log, s.opts.Registry)
		s.onClose(unregister)
		return c.bound
	}
	client := bound("clients", clients)
	l.grpc, l.http, l.admin = s.clients.listen(client(l.grpc)), client(l.http), bound("admin", admins)(l.admin)
	if l.metrics != nil {
		l.metrics = bound("metrics", admins)(l.metrics)
	}
	return l
}

// ignoreClosed drops the error of a listener that its server has already closed.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func isStopped(err error) bool { return errors.Is(err, grpc.ErrServerStopped) }

// chain returns the chain of a listener (server/rpc).
func (s *Server) chain(caller string) *rpc.Chain {
	return rpc.NewChain(rpc.ChainOptions{
		Limits: s.limits(), Caller: caller, Metrics: s.metrics, Methods: s.methods,
		Leaders: func() rpc.Leaders { return s.replica }, Access: s.access.Load,
	})
}

func (s *Server) limits() decode.Limits {
	return decode.Limits{Bytes: s.opts.MaxRequestBytes, Memory: s.memory, Cut: s.clients.cut}
}

// openCluster opens the connections to other nodes. Their listener serves the same services as that
// of clients. The cluster rejects clients' calls before Attach.
func (s *Server) openCluster(listener net.Listener, tls *peer.TLS) (err error) {
	chain := s.chain(rpc.CallerMember)
	s.gate = join.New(join.Options{Clock: s.opts.Clock, Logger: s.log})
	s.cluster, err = cluster.New(cluster.Options{
		Identity: s.dir.Identity(), Save: s.dir.Save, Listener: listener, Dial: s.opts.Dial, TLS: tls,
		Advertise: s.opts.RaftAdvertise, GRPC: advertised(s.opts.GRPCAdvertise, s.addresses.GRPC),
		HTTP: advertised(s.opts.HTTPAdvertise, s.addresses.HTTP), Expect: s.opts.BootstrapExpect, Join: s.opts.Join,
		JoinToken: s.opts.JoinToken, Admission: s.gate,
		Version: s.opts.Version, FeatureLevel: s.opts.Store.FeatureLevel, ServerOptions: slices.Concat(chain.ServerOptions(), transportOptions()),
		Register: func(g *grpc.Server) { chain.Register(g, s.services) },
		Encode:   rpc.Status, Usage: s.disk.Usage, Alerts: s.alerts.Standing, SigningKey: s.signingKey, KeepSigningKey: s.keepSigningKey,
		Fail: s.opts.Fail, Clock: s.opts.Clock, Logger: s.log, Registerer: s.opts.Registry,
	})
	if err == nil {
		s.joining.Store(s.cluster)
		s.onClose(s.cluster.Close)
	}
	return err
}

// advertised returns the address at which clients reach a listener.
func advertised(asked, bound string) string {
	if asked != "" {
		return asked
	}
	return bound
}

// signingKey returns the cluster's private key with a number, for another member.
func (s *Server) signingKey(number uint64) ([]byte, bool) {
	if signer := s.signer.Load(); signer != nil {
		return signer.Seed(number)
	}
	return nil, false
}

// keepSigningKey stores a key that another member is about to propose.
func (s *Server) keepSigningKey(number uint64, seed []byte) error {
	if signer := s.signer.Load(); signer != nil {
		return signer.Keep(number, seed)
	}
	return errors.New("the node is starting")
}

// pages are the handlers of the HTTP listeners. They answer health checks while the node waits for
// its cluster.
type pages struct {
	admin  *admin.Admin
	public *gateway.Pages
	http   *http.Server // of public
}

// serveHealth serves health and metrics, also while the node waits for its cluster.
func (s *Server) serveHealth(l listeners) pages {
	p := pages{
		admin: admin.New(s.opts.Registry, admin.Pages{Healthz: s.healthz, Readyz: s.readyz}),
		public: gateway.NewPages(gateway.PagesOptions{
			Healthz: s.healthz, Readyz: s.readyz, Waiting: s.notReady, Wait: s.opts.LeaderWait, Stopping: s.stopping,
			Origins: s.corsOrigins(),
		}),
	}
	h := p.admin.Server()
	h.Handler = guarded(h.Handler, s.opts.AdminListen)
	public := ownPages(p.public, s.corsOrigins(), nameOrigin)
	if isLoopback(s.opts.HTTPListen) && !s.opts.Authenticate {
		public = ownNames(public, s.opts.HTTPAdvertise, ", name this one in --http-advertise, or start the node with --auth required")
	}
	p.http = s.newHTTPServer(public)
	s.onClose(h.Close)
	s.onClose(p.http.Close)
	s.goServe("admin", func() error { return h.Serve(l.admin) })
	s.goServe("http", func() error { return s.serveHTTP(p.http, l.http) })
	if l.metrics != nil {
		s.serveMetrics(l.metrics, p.admin)
	}
	return p
}

// guarded refuses foreign names and foreign pages at a listener that no page is for.
func guarded(h http.Handler, address string) http.Handler {
	h = ownPages(h, nil, "")
	if isLoopback(address) {
		h = ownNames(h, "", "")
	}
	return h
}

// serveMetrics serves the metrics and the health of the node alone, without credentials.
func (s *Server) serveMetrics(l net.Listener, of *admin.Admin) {
	m := s.newHTTPServer(guarded(of.Open(), s.opts.MetricsListen))
	s.onClose(m.Close)
	s.goServe("metrics", func() error { return s.serveHTTP(m, l) })
}

// newHTTPServer returns an HTTP server for clients.
func (s *Server) newHTTPServer(h http.Handler) *http.Server {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: log.New(httpLog{s.log}, "", 0)}
	if s.clientTLS != nil {
		server.TLSConfig = s.clientTLS.http()
	}
	return server
}

// serveHTTP serves with TLS if clients must use it.
func (s *Server) serveHTTP(h *http.Server, l net.Listener) error {
	if h.TLSConfig != nil {
		return h.ServeTLS(l, "", "")
	}
	return h.Serve(l)
}

// httpLog takes the messages of net/http.
type httpLog struct{ log *slog.Logger }

// Write logs a line. Anybody can make a handshake fail, so that is a debug message.
func (l httpLog) Write(line []byte) (int, error) {
	level := slog.LevelError
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, "error of the HTTP listener", "err", string(bytes.TrimSpace(line)))
	return len(line), nil
}

// serve starts the gRPC server and the gateway, and completes the HTTP listeners.
func (s *Server) serve(l listeners, p pages) error {
	chain := s.chain(rpc.CallerClient)
	options := slices.Concat(ownOrigins(s.corsOrigins()), chain.ServerOptions(), transportOptions(), s.opts.GRPC)
	if s.clientTLS != nil {
		options = append(options, grpc.Creds(s.clientTLS.credentials()))
	}
	g := grpc.NewServer(options...)
	chain.Register(g, s.services)
	s.health = health.NewServer()
	s.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(chain.Guard(g), newHealthChecks(s.health))
	inner := gateway.Listen()
	s.onClose(func() error { return chain.Inflight().Drain(g) })
	conn, err := gateway.Dial(chain.Direct(s.services), inner, s.limits())
	if err != nil {
		return err
	}
	s.onClose(conn.Close)
	api, err := gateway.New(s.stopping, gateway.Options{Conn: conn, Limits: s.limits(), Services: s.services, Check: chain.Check})
	if err != nil {
		return err
	}
	s.onClose(func() error { return drainHTTP(p.http) })
	p.public.Serve(api)
	p.admin.Serve(admin.Options{Node: s.replica, Projector: s.projector, Chain: chain, Rules: s.importRules, Limits: s.limits(), Logger: s.log, Reflect: g})
	s.goServe("grpc", func() error { return g.Serve(l.grpc) })
	s.goServe("gateway", func() error { return g.Serve(inner) })
	// Closers run last first: streams end and new calls are refused before anything else closes.
	s.onClose(func() error { s.health.Shutdown(); return nil })
	return nil
}

// transportOptions returns the transport options of both gRPC servers, for clients and for members.
func transportOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(rpc.MaxConcurrentStreams),
		// gRPC's default is 16 MiB for each connection.
		grpc.MaxHeaderListSize(maxHeaderBytes),
		// A goroutine that has grown its stack once serves many calls.
		grpc.NumStreamWorkers(streamWorkers),
		// A batch of events fits into a window, and a connection may have many in flight. With
		// gRPC's default of 64 KiB each batch would wait for a window update.
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(connBuffer),
		grpc.WriteBufferSize(connBuffer),
		// A connection that never completes its handshake delays even a hard stop by this time.
		grpc.ConnectionTimeout(rpc.DrainTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}

// corsOrigins returns the origins whose pages may call the API: by default those of this machine,
// if only this machine reaches the listener.
func (s *Server) corsOrigins() gateway.Origins {
	if s.opts.CORSOrigins != nil {
		return s.opts.CORSOrigins
	}
	if isLoopback(s.addresses.HTTP) {
		return gateway.Origins{gateway.LoopbackOrigins}
	}
	return nil
}

// drainHTTP waits for HTTP calls to end, at most rpc.DrainTimeout.
func drainHTTP(h *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), rpc.DrainTimeout)
	defer cancel()
	if err := h.Shutdown(ctx); err != nil {
		return h.Close()
	}
	return nil
}
