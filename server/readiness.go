package server

import (
	"context"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
)

const (
	// readinessStep is how often a node looks whether it still keeps up.
	readinessStep = 250 * time.Millisecond
	// maxBehind is how many entries of the log a follower may not have applied and be up to date.
	maxBehind = 1000
	// silence, in election timeouts, is how long a follower may not have heard from its leader.
	silence = 2
)

// followReadiness keeps the health service true, and tells the addresses once the node serves.
func (s *Server) followReadiness() {
	first := true
	for caughtUp := false; ; {
		changed := s.replica.Node().LeaderChange()
		now := s.standing(&caughtUp)
		if s.upToDate.Swap(now) != now {
			state := grpc_health_v1.HealthCheckResponse_NOT_SERVING
			if now {
				state = grpc_health_v1.HealthCheckResponse_SERVING
			}
			s.health.SetServingStatus("", state)
		}
		if now && first {
			first = false
			if err := s.dir.WriteJSON("addresses.json", s.addresses); err != nil {
				s.opts.Fail(err)
				return
			}
			close(s.ready)
		}
		select {
		case <-changed:
		case <-time.After(readinessStep):
		case <-s.stopping.Done():
			s.upToDate.Store(false)
			return
		}
	}
}

// standing says whether the node leads, or follows a leader and has what that had when it first
// followed one.
func (s *Server) standing(caughtUp *bool) bool {
	leadership, err := s.cluster.Leader()
	switch {
	case err != nil:
		return false
	case leadership.Link == nil:
		*caughtUp = true
		return true
	}
	if !*caughtUp {
		ctx, cancel := context.WithTimeout(s.stopping, readinessStep)
		defer cancel()
		position, err := s.cluster.ReadPosition(ctx, leadership)
		if err != nil || s.replica.Await(ctx, position) != nil {
			return false
		}
		*caughtUp = true
	}
	now := s.replica.Node().Status()
	timeout := s.opts.Raft.ElectionTimeout
	if timeout == 0 {
		timeout = time.Second
	}
	return now.LastContact >= 0 && now.LastContact < silence*timeout && now.AppliedIndex+maxBehind >= now.CommitIndex
}
