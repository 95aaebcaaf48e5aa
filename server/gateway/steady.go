package gateway

import (
	"net/http"
	"time"
)

const (
	// writeTimeout is how long a reader may take for writePiece bytes of an answer.
	writeTimeout = 30 * time.Second
	writePiece   = 64 << 10
)

// steady is a ResponseWriter that ends the connection of a client that does not read its answer.
type steady struct {
	http.ResponseWriter
	timeout time.Duration
}

// newSteady sets the first deadline: net/http writes headers and the end of an answer itself.
func newSteady(w http.ResponseWriter, timeout time.Duration) *steady {
	s := &steady{w, timeout}
	s.extend()
	return s
}

// extend sets a deadline. A connection that does not support deadlines is not from the network.
func (s *steady) extend() {
	_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(time.Now().Add(s.timeout))
}

// Write writes a part of the answer, with a deadline for each piece.
func (s *steady) Write(b []byte) (written int, err error) {
	for {
		s.extend()
		n, err := s.ResponseWriter.Write(b[:min(len(b), writePiece)])
		written += n
		if b = b[n:]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// FlushError is for http.ResponseController.
func (s *steady) FlushError() error {
	s.extend()
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (s *steady) Flush() { _ = s.FlushError() }

// Unwrap is for http.ResponseController.
func (s *steady) Unwrap() http.ResponseWriter { return s.ResponseWriter }
