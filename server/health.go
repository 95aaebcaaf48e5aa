package server

import (
	"encoding/json"
	"net/http"
)

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
