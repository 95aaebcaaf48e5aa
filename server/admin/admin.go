package admin

import (
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"runlog/projector"
	"runlog/proto/contract"
	"runlog/server/auth"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
)

// Options configure the handler. All are required but Reflect.
type Options struct {
	Node      *replica.Replica
	Projector *projector.Projector
	// Log records the calls that change something (SEC-7); nil: nothing is recorded.
	Log rpc.AccessLog
	// Rules returns the rules that events of a run must meet.
	Rules  func(runID string) contract.Options
	Limits decode.Limits
	Logger *slog.Logger
	// Reflect is the gRPC server whose services the admin listener describes (gRPC reflection);
	// nil: none.
	Reflect *grpc.Server
}

// Admin is the handler of the admin listener. Before Serve it has health and metrics only, because
// a node may wait long for its cluster.
type Admin struct {
	opts  Options
	early *http.ServeMux
	whole atomic.Pointer[http.ServeMux]
	// reflection answers gRPC, which comes as HTTP/2 without TLS.
	reflection atomic.Pointer[grpc.Server]
	pages      Pages
}

// Pages are the handlers of health checks.
type Pages struct{ Healthz, Readyz http.HandlerFunc }

// New makes the handler.
func New(registry *prometheus.Registry, pages Pages) *Admin {
	a := &Admin{pages: pages}
	a.early = a.health(registry)
	return a
}

// Serve completes the handler once the node is a member of its cluster.
func (a *Admin) Serve(opts Options, registry *prometheus.Registry) {
	a.opts = opts
	mux := a.health(registry)
	mux.HandleFunc("POST /import", a.recorded(a.importRecords))
	mux.HandleFunc("POST /projection/rebuild", a.recorded(a.rebuildProjection))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	a.whole.Store(mux)
	if opts.Reflect != nil {
		a.reflection.Store(newReflection(opts.Reflect))
	}
}

// newReflection returns a gRPC server that describes the services of another one and serves no
// other call.
func newReflection(of *grpc.Server) *grpc.Server {
	g := grpc.NewServer()
	opts := reflection.ServerOptions{Services: of}
	reflectionv1.RegisterServerReflectionServer(g, reflection.NewServerV1(opts))
	reflectionv1alpha.RegisterServerReflectionServer(g, reflection.NewServer(opts))
	return g
}

// operator is the caller of a listener without authentication.
var operator = &auth.Identity{Name: "admin-listener"}

// recorded records a call before it is made (SEC-7).
func (a *Admin) recorded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if a.opts.Log != nil {
			if err := a.opts.Log.Allowed(r.Context(), rpc.Call{Identity: operator, Address: r.RemoteAddr, Method: r.Method + " " + r.URL.Path}); err != nil {
				rpc.WriteError(w, rpc.Status(err))
				return
			}
		}
		next(w, r)
	}
}

func (a *Admin) health(registry *prometheus.Registry) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", a.pages.Healthz)
	mux.HandleFunc("GET /readyz", a.pages.Readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// ServeHTTP answers with the pages that exist so far.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g := a.reflection.Load(); g != nil && r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		g.ServeHTTP(w, r)
		return
	}
	if whole := a.whole.Load(); whole != nil {
		whole.ServeHTTP(w, r)
		return
	}
	a.early.ServeHTTP(w, r)
}

// Server returns an HTTP server for the handler.
func (a *Admin) Server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: a, Protocols: protocols}
}
