package server

import (
	"context"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
)

const (
	// readinessStep is the time between two checks whether the node keeps up.
	readinessStep = 250 * time.Millisecond
	// maxBehind is how many committed entries an up-to-date follower may not have applied yet.
	maxBehind = 1000
	// silence is how long a follower may hear nothing from its leader, in election timeouts.
	silence = 2
)

// followReadiness sets the health service. Once the node serves, it writes addresses.json.
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

// standing reports whether the node leads, or follows a leader and has applied what that leader had
// committed when the node first followed one.
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
