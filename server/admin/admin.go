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
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
)

// Options configure the handler. All are required but Reflect.
type Options struct {
	Node      *replica.Replica
	Projector *projector.Projector
	// Chain decides which callers may do more than read metrics and health.
	Chain *rpc.Chain
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
	opts Options
	// open needs no credentials. Everything else needs those of an admin (SEC-12).
	open  *http.ServeMux
	whole atomic.Pointer[http.ServeMux] // all but open
	// reflection answers gRPC, which comes as HTTP/2 without TLS.
	reflection atomic.Pointer[grpc.Server]
}

// Pages are the handlers of health checks.
type Pages struct{ Healthz, Readyz http.HandlerFunc }

// New makes the handler.
func New(registry *prometheus.Registry, pages Pages) *Admin {
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", pages.Healthz)
	open.HandleFunc("GET /readyz", pages.Readyz)
	open.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return &Admin{open: open}
}

// Open returns the handler of metrics and health alone.
func (a *Admin) Open() http.Handler { return a.open }

// Serve completes the handler once the node is a member of its cluster.
func (a *Admin) Serve(opts Options) {
	a.opts = opts
	mux := http.NewServeMux()
	for pattern, handler := range a.routes() {
		mux.HandleFunc(pattern, handler)
	}
	a.whole.Store(mux)
	if opts.Reflect != nil {
		a.reflection.Store(newReflection(opts.Reflect, opts.Chain))
	}
}

// routes are the routes that need the credentials of an admin.
func (a *Admin) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /import":             a.importRecords,
		"POST /projection/rebuild": a.rebuildProjection,
		"/debug/pprof/":            pprof.Index,
		"/debug/pprof/cmdline":     pprof.Cmdline,
		"/debug/pprof/profile":     pprof.Profile,
		"/debug/pprof/symbol":      pprof.Symbol,
		"/debug/pprof/trace":       pprof.Trace,
	}
}

// newReflection returns a gRPC server that describes the services of another one and serves no
// other call.
func newReflection(of *grpc.Server, chain *rpc.Chain) *grpc.Server {
	g := grpc.NewServer(grpc.StreamInterceptor(chain.AdmitAdminStream))
	opts := reflection.ServerOptions{Services: of}
	reflectionv1.RegisterServerReflectionServer(g, reflection.NewServerV1(opts))
	reflectionv1alpha.RegisterServerReflectionServer(g, reflection.NewServer(opts))
	return g
}

// ServeHTTP answers with the pages that exist so far.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g := a.reflection.Load(); g != nil && r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		g.ServeHTTP(w, r)
		return
	}
	whole := a.whole.Load()
	if _, open := a.open.Handler(r); open != "" || whole == nil {
		a.open.ServeHTTP(w, r)
		return
	}
	ctx, err := a.opts.Chain.AdmitAdmin(r)
	if err != nil {
		rpc.WriteError(w, err)
		return
	}
	whole.ServeHTTP(w, r.WithContext(ctx))
}

// Server returns an HTTP server for the handler.
func (a *Admin) Server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: a, Protocols: protocols}
}
