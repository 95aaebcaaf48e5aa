package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc"

	"runlog/proto/contract"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/storage"
)

// What the tests of whole nodes use, which are in package server_test, as the kit servertest
// imports this package.
const (
	MaxHeaderBytes     = maxHeaderBytes
	MemoryShare        = memoryShare
	HealthWatchesOfOne = healthWatchesOfOne
	StreamWorkers      = streamWorkers
	StreamWindow       = streamWindow
	ConnWindow         = connWindow
	ConnBuffer         = connBuffer
)

var TransportOptions = transportOptions

func (s *Server) Chain(caller string) *rpc.Chain { return s.chain(caller) }

func (s *Server) Limits() decode.Limits { return s.limits() }

func (s *Server) Rules(runID string) contract.Options { return s.rules(runID) }

func (s *Server) Healthz(w http.ResponseWriter, r *http.Request) { s.healthz(w, r) }

func (s *Server) Readyz(w http.ResponseWriter, r *http.Request) { s.readyz(w, r) }

func (s *Server) KeepSigningKey(number uint64, seed []byte) error {
	return s.keepSigningKey(number, seed)
}

func (s *Server) CheckLag(w *LagWatch, lag time.Duration, at storage.Position, now time.Time) {
	s.checkLag(w, lag, at, now)
}

type LagWatch = lagWatch

func (w *lagWatch) Raised() bool { return w.raised }

func (s *Server) Services() []*rpc.Service { return s.services }

func (s *Server) Disk() *replica.Disk { return s.disk }

func (s *Server) Stop() { s.stop() }

func (s *Server) Stopping() <-chan struct{} { return s.stopping.Done() }

// Descs returns the descriptions of what a node serves.
func Descs() []*grpc.ServiceDesc {
	list := make([]*grpc.ServiceDesc, len(services))
	for i, s := range services {
		list[i] = s.desc
	}
	return list
}

// StartWith starts a node with one more service.
func StartWith(ctx context.Context, opts Options, desc *grpc.ServiceDesc, open func(*Server) any) (*Server, error) {
	added := service{desc, nil, func(s *Server, _ *parts) any { return open(s) }}
	return start(ctx, opts, append(slices.Clone(services), added))
}
