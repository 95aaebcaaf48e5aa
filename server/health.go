package server

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"runlog/server/rpc"
)

// healthWatches bounds the streams of health, which every machine that reaches the node may open,
// and healthWatchesOfOne those of one address: a machine must not shut out all others.
const (
	healthWatches      = 200
	healthWatchesOfOne = 20
)

// healthChecks answers health over gRPC, to callers without credentials.
type healthChecks struct {
	*health.Server
	mu struct {
		sync.Mutex
		all  int
		open map[netip.Prefix]int // watches of each address; absent: none
	}
}

func newHealthChecks(s *health.Server) *healthChecks {
	h := &healthChecks{Server: s}
	h.mu.open = make(map[netip.Prefix]int)
	return h
}

// Watch follows the state of the node. gRPC's own server keeps each name that was ever watched, so
// only that of the node is.
func (h *healthChecks) Watch(req *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	if req.Service != "" {
		return status.Error(codes.NotFound, "unknown service: leave the name out for the state of the node")
	}
	var from net.Addr
	if p, ok := peer.FromContext(stream.Context()); ok {
		from = p.Addr
	}
	end, ok := h.take(from)
	if !ok {
		return rpc.Status(rpc.TooManyStreams())
	}
	defer end()
	return h.Server.Watch(req, stream)
}

// take counts a watch until the caller ends it; false: it is one too many.
func (h *healthChecks) take(from net.Addr) (end func(), ok bool) {
	share := shareOf(from)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.all >= healthWatches || h.mu.open[share] >= healthWatchesOfOne {
		return nil, false
	}
	h.mu.all++
	h.mu.open[share]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mu.all--
		if h.mu.open[share]--; h.mu.open[share] == 0 {
			delete(h.mu.open, share)
		}
	}, true
}

// shareOf returns the network that has a share of its own: an address of IPv4, or 64 bits of IPv6,
// all of whose addresses one machine may have. Callers without such an address have one together.
func shareOf(from net.Addr) netip.Prefix {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap()
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	share, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return share
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
