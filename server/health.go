package server

import (
	"encoding/json"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"runlog/server/rpc"
)

// healthWatches bounds the streams of health, which every machine that reaches the node may open.
const healthWatches = 100

// healthChecks answers health over gRPC, to callers without credentials.
type healthChecks struct {
	*health.Server
	watches chan struct{}
}

func newHealthChecks(s *health.Server) *healthChecks {
	return &healthChecks{s, make(chan struct{}, healthWatches)}
}

// Watch follows the state of the node. gRPC's own server keeps each name that was ever watched, so
// only that of the node is.
func (h *healthChecks) Watch(req *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	if req.Service != "" {
		return status.Error(codes.NotFound, "unknown service: leave the name out for the state of the node")
	}
	select {
	case h.watches <- struct{}{}:
		defer func() { <-h.watches }()
		return h.Server.Watch(req, stream)
	default:
		return rpc.Status(rpc.TooManyStreams())
	}
}

// healthz answers 200 while the process lives.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeState(w, http.StatusOK, "ok")
}

// readyz answers 200 while the node can take appends.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if !s.Ready() {
		writeNotReady(w, s.notReady())
		return
	}
	writeState(w, http.StatusOK, "ready")
}

// notReady returns the reason why the node cannot take appends.
func (s *Server) notReady() string {
	switch low, c := s.disk.Refusal(), s.joining.Load(); {
	case s.stopping.Err() != nil:
		return "the node is stopping"
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
