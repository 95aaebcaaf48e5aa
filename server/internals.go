package server

import (
	"sync/atomic"

	"runlog/projector"
	"runlog/server/audit"
	"runlog/server/budget"
	"runlog/server/cluster"
	"runlog/server/join"
	"runlog/server/replica"
	"runlog/server/rpc"
)

// Internals are parts of a running node. Programs use the node's services instead: tests of whole
// nodes (package servertest) find out from the parts what no call tells, and bring about what no
// call does.
type Internals struct {
	Replica   *replica.Replica
	Projector *projector.Projector
	Cluster   *cluster.Cluster
	Gate      *join.Gate
	Signer    *atomic.Pointer[audit.Signer]
	Access    *atomic.Pointer[rpc.Access]
	Alerts    *replica.Alerts
	Memory    *budget.Budget
}

// Internals returns the parts of the node.
func (s *Server) Internals() Internals {
	return Internals{
		Replica: s.replica, Projector: s.projector, Cluster: s.cluster, Gate: s.gate, Signer: &s.signer, Access: &s.access,
		Alerts: &s.alerts, Memory: s.memory,
	}
}
