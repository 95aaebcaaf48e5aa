package server

import (
	"context"
	"errors"
	"fmt"
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
	"runlog/server/peer"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
)

const (
	// streamWorkers take calls; those beyond get goroutines of their own.
	streamWorkers = 512
	// Flow control of gRPC connections, in bytes: of one call, and of a connection.
	streamWindow = 1 << 20
	connWindow   = 8 << 20
	connBuffer   = 64 << 10
	// idleTimeout of a connection that waits for its next HTTP request.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes has room for what browsers and proxies add to a request.
	maxHeaderBytes = 64 << 10
)

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

func isStopped(err error) bool { return errors.Is(err, grpc.ErrServerStopped) }

// chain returns the chain of a listener (server/rpc).
func (s *Server) chain(caller string) *rpc.Chain {
	return rpc.NewChain(rpc.ChainOptions{
		Limits: s.limits(), Caller: caller, Metrics: s.metrics, Methods: s.methods,
		Leaders: func() rpc.Leaders { return s.replica },
	})
}

func (s *Server) limits() decode.Limits { return decode.Limits{Bytes: s.opts.MaxRequestBytes} }

// openCluster begins to talk to other nodes. Their listener serves the same services as that of
// clients; the cluster lets no client's call through before Attach.
func (s *Server) openCluster(listener net.Listener, tls *peer.TLS) (err error) {
	chain := s.chain(rpc.CallerMember)
	s.cluster, err = cluster.New(cluster.Options{
		Identity: s.dir.Identity(), Save: s.dir.Save, Listener: listener, Dial: s.opts.Dial, TLS: tls,
		Advertise: s.opts.RaftAdvertise, GRPC: advertised(s.opts.GRPCAdvertise, s.addresses.GRPC),
		HTTP: advertised(s.opts.HTTPAdvertise, s.addresses.HTTP), Expect: s.opts.BootstrapExpect, Join: s.opts.Join,
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

// advertised is where clients reach a listener.
func advertised(asked, bound string) string {
	if asked != "" {
		return asked
	}
	return bound
}

// signingKey gives another member the cluster's key.
func (s *Server) signingKey(number uint64) ([]byte, bool) {
	if signer := s.signer.Load(); signer != nil {
		return signer.Seed(number)
	}
	return nil, false
}

// keepSigningKey keeps a key that another member is about to propose.
func (s *Server) keepSigningKey(number uint64, seed []byte) error {
	if signer := s.signer.Load(); signer != nil {
		return signer.Keep(number, seed)
	}
	return errors.New("the node is starting")
}

// serveAdmin serves health and metrics, also while the node waits for its cluster.
func (s *Server) serveAdmin(l net.Listener) *admin.Admin {
	a := admin.New(s.opts.Registry, admin.Pages{Healthz: s.healthz, Readyz: s.readyz})
	h := a.Server()
	s.onClose(h.Close)
	s.goServe("admin", func() error { return h.Serve(l) })
	return a
}

// serve starts the gRPC server and the gateway, and completes the admin listener.
func (s *Server) serve(l listeners, a *admin.Admin) error {
	chain := s.chain(rpc.CallerClient)
	g := grpc.NewServer(slices.Concat(chain.ServerOptions(), transportOptions(), s.opts.GRPC)...)
	chain.Register(g, s.services)
	s.health = health.NewServer()
	s.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(g, s.health)
	inner := gateway.Listen()
	s.onClose(func() error { return chain.Inflight().Drain(g) })
	conn, err := gateway.Dial(inner, s.limits())
	if err != nil {
		return err
	}
	s.onClose(conn.Close)
	api, err := gateway.New(s.stopping, gateway.Options{Conn: conn, Limits: s.limits(), Services: s.services})
	if err != nil {
		return err
	}
	public := &http.Server{Handler: gateway.Pages(s.healthz, s.readyz, api), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}
	s.onClose(func() error { return drainHTTP(public) })
	a.Serve(admin.Options{Node: s.replica, Projector: s.projector, Rules: s.rules, Limits: s.limits(), Logger: s.log}, s.opts.Registry)
	s.goServe("grpc", func() error { return g.Serve(l.grpc) })
	s.goServe("gateway", func() error { return g.Serve(inner) })
	s.goServe("http", func() error { return public.Serve(l.http) })
	// Closers run last first: streams end and new calls stop before anything else goes.
	s.onClose(func() error { s.health.Shutdown(); return nil })
	return nil
}

// transportOptions are those of both gRPC servers, for clients and for members.
func transportOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(rpc.MaxConcurrentStreams),
		// Goroutines that have grown their stack once serve many calls.
		grpc.NumStreamWorkers(streamWorkers),
		// A batch of events fits into a window, and a connection may have many in flight: flow
		// control by gRPC's own 64 KiB would make each batch wait for an update.
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(connBuffer),
		grpc.WriteBufferSize(connBuffer),
		// A silent connection holds up even a hard stop for so long.
		grpc.ConnectionTimeout(rpc.DrainTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
}

// drainHTTP lets HTTP calls end, for rpc.DrainTimeout.
func drainHTTP(h *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), rpc.DrainTimeout)
	defer cancel()
	if err := h.Shutdown(ctx); err != nil {
		return h.Close()
	}
	return nil
}
