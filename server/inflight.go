package server

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

const (
	// flushTimeout is how long answers that are made may take to leave a node that stops.
	flushTimeout = time.Second
	// drainStep is how often a node that stops looks whether calls are under way.
	drainStep = 20 * time.Millisecond
)

// inflight counts the gRPC calls of clients that are being answered.
type inflight struct{ calls atomic.Int64 }

func (h *inflight) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	h.calls.Add(1)
	defer h.calls.Add(-1)
	return next(ctx, req)
}

func (h *inflight) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	h.calls.Add(1)
	defer h.calls.Add(-1)
	return next(srv, ss)
}

// drain lets calls under way end, for a while. Once none is being answered any more only answers
// are on their way: somebody who reads nothing, whom nothing can be told therefore, holds up the
// end for flushTimeout.
func (h *inflight) drain(g *grpc.Server) error {
	done := make(chan struct{})
	go func() {
		g.GracefulStop()
		close(done)
	}()
	look := time.NewTicker(drainStep)
	defer look.Stop()
	end, answered := time.Now().Add(drainTimeout), false
	for now := time.Now(); now.Before(end); {
		select {
		case <-done:
			return nil
		case now = <-look.C:
		}
		if !answered && h.calls.Load() == 0 { // new ones are refused
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
