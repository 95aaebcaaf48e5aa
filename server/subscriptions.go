package server

import (
	"errors"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/window"
)

// Shares of MemoryBytes that the events take which subscriptions keep for their deliveries: those
// of one, and of all.
const (
	windowShare  = 128
	windowsShare = 16
)

func (s *Server) openSubscriptions(*parts) any {
	x := subscriptions.New(subscriptions.Options{
		Node: s.replica, Cluster: s.cluster.Identity().ClusterID, Memory: s.memory,
		Windows:         &window.Memory{One: s.opts.MemoryBytes / windowShare, All: s.opts.MemoryBytes / windowsShare},
		OpenSink:        func(string, *runlogv1.Delivery, int) (delivery.Sink, error) { return nil, errors.New("no sinks yet") },
		CheckSink:       func(*runlogv1.Delivery) []contract.Violation { return nil },
		NeedsAllTenants: func(*runlogv1.Delivery) bool { return true },
		Clock:           s.opts.Clock, Logger: s.log, Registry: s.opts.Registry, Stopping: s.stopping,
	})
	s.onClose(x.Close)
	return x
}
