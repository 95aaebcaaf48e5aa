package rpc

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

const (
	// DrainTimeout is how long a stopping server waits for calls in flight, of the 10 s that a stop
	// may take.
	DrainTimeout = 3 * time.Second
	// flushTimeout is how long finished answers may take to leave a stopping server.
	flushTimeout = time.Second
	// drainStep is how often a stopping server looks for calls in flight.
	drainStep = 20 * time.Millisecond
)

// Inflight counts the calls of one listener that are being answered.
type Inflight struct{ calls atomic.Int64 }

// Drain stops a server once its calls have ended, after DrainTimeout at the latest. Once no call is
// being answered, only finished answers are on their way. A client that reads nothing can hold up
// the stop for flushTimeout and no longer.
func (h *Inflight) Drain(g *grpc.Server) error {
	done := make(chan struct{})
	go func() {
		g.GracefulStop()
		close(done)
	}()
	look := time.NewTicker(drainStep)
	defer look.Stop()
	end, answered := time.Now().Add(DrainTimeout), false
	for now := time.Now(); now.Before(end); {
		select {
		case <-done:
			return nil
		case now = <-look.C:
		}
		if !answered && h.calls.Load() == 0 { // New calls are refused.
			answered = true
			if flushed := now.Add(flushTimeout); flushed.Before(end) {
				end = flushed
			}
		}
	}
	g.Stop()
	<-done
	return nil
}
