package server

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// publicHandler is what the HTTP listener serves.
func (s *Server) publicHandler(gateway http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// No http.ServeMux here: it cleans paths, and a runId may hold escaped slashes.
		switch r.URL.Path {
		case "/healthz":
			servePage(w, r, s.healthz)
		case "/readyz":
			servePage(w, r, s.readyz)
		case "/openapi.json":
			servePage(w, r, serveOpenAPI)
		default:
			if strings.HasPrefix(r.URL.Path, schemasPath) {
				servePage(w, r, serveSchema)
				return
			}
			gateway.ServeHTTP(w, r)
		}
	})
}

// servePage serves what can only be read.
func servePage(w http.ResponseWriter, r *http.Request, page http.HandlerFunc) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		hangUp(w)
		writeMethodNotAllowed(w, r, []string{http.MethodGet, http.MethodHead})
	case !refuseBody(w, r):
		page(w, r)
	}
}

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(runlogv1.OpenAPI)
}

const schemasPath = "/schemas/"

// serveSchema answers GET /schemas/{contract}/{eventType}.json (ENV-5).
func serveSchema(w http.ResponseWriter, r *http.Request) {
	version, file, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, schemasPath), "/")
	name, isJSON := strings.CutSuffix(file, ".json")
	line, known := contract.ParseLine(version)
	schema, found := contract.Schema(line, name)
	if !isJSON || !known || !found || version == "" {
		writeRouteNotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/schema+json")
	_, _ = w.Write(schema)
}

// serveAdmin serves on the admin listener what a node can tell that does not serve yet. What it is
// given later replaces that.
func (s *Server) serveAdmin(l net.Listener) *atomic.Pointer[http.Handler] {
	handler := new(atomic.Pointer[http.Handler])
	early := s.earlyHandler()
	handler.Store(&early)
	admin := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*handler.Load()).ServeHTTP(w, r)
	})}
	s.onClose(admin.Close)
	s.goServe("admin", func() error { return admin.Serve(l) })
	return handler
}

// earlyHandler is what the admin listener serves before the node belongs to a cluster and has its
// state.
func (s *Server) earlyHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.opts.Registry, promhttp.HandlerOpts{}))
	return mux
}

// adminHandler is what the admin listener serves.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.opts.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /import", s.importRecords)
	mux.HandleFunc("POST /projection/rebuild", s.rebuildProjection)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// healthz: the process lives.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeState(w, http.StatusOK, "ok")
}

// readyz: the node can take appends.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if !s.Ready() {
		writeNotReady(w, s.notReady())
		return
	}
	writeState(w, http.StatusOK, "ready")
}

// notReady says why the node cannot take appends.
func (s *Server) notReady() string {
	switch low, c := s.diskLow.Load(), s.joining.Load(); {
	case s.stopping.Err() != nil:
		return "the node is going down"
	case c == nil:
		return "the node is starting"
	case low != nil:
		return low.Message
	default:
		return c.Waiting()
	}
}

func writeNotReady(w http.ResponseWriter, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": "not ready", "reason": reason})
}

func writeState(w http.ResponseWriter, code int, state string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": state})
}
