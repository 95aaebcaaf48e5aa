package rpc

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

const (
	// DrainTimeout is how long a stopping server waits for calls in flight. A stop may take 10 s in
	// all.
	DrainTimeout = 3 * time.Second
	// flushTimeout is how long a stopping server waits for finished answers to be sent.
	flushTimeout = time.Second
	// drainStep is the time between two checks for calls in flight.
	drainStep = 20 * time.Millisecond
)

// Inflight counts the calls in flight of one listener.
type Inflight struct{ calls atomic.Int64 }

// Drain stops a server once its calls have ended, after DrainTimeout at the latest. It waits for
// the calls without a connection too (Direct), of which the server does not know. Once no call is
// in flight, only finished answers are left to send. A client that reads nothing delays the stop by
// at most flushTimeout.
func (h *Inflight) Drain(g *grpc.Server) error {
	stopped := make(chan struct{})
	go func() {
		g.GracefulStop()
		close(stopped)
	}()
	done := stopped
	look := time.NewTicker(drainStep)
	defer look.Stop()
	end, answered := time.Now().Add(DrainTimeout), false
	for now := time.Now(); now.Before(end); {
		select {
		case <-done:
			done = nil
		case now = <-look.C:
		}
		idle := h.calls.Load() == 0
		if idle && done == nil {
			return nil
		}
		if !answered && idle { // New calls are refused.
			answered = true
			if flushed := now.Add(flushTimeout); flushed.Before(end) {
				end = flushed
			}
		}
	}
	g.Stop()
	<-stopped
	return nil
}
