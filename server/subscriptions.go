package server

import (
	"runlog/server/subscriptions"
	"runlog/server/subscriptions/window"
)

// Shares of MemoryBytes that the events take which subscriptions keep for their deliveries: those
// of one, and of all. What the tail of the log keeps is a part of the latter.
const (
	windowShare  = 128
	windowsShare = 16
)

func (s *Server) openSubscriptions(*parts) any {
	x := subscriptions.New(subscriptions.Options{
		Node: s.replica, Cluster: s.cluster.Identity().ClusterID, Memory: s.memory, Tail: s.tail,
		Windows:        &window.Memory{One: s.opts.MemoryBytes / windowShare, All: s.opts.MemoryBytes/windowsShare - s.opts.MemoryBytes/tailShare},
		SinkSecretsDir: s.opts.SinkSecretsDir, OpenSink: s.opts.OpenSink, DialSink: s.opts.DialOut,
		Clock: s.replica.Stamps().Now, Logger: s.log, Registry: s.opts.Registry, Stopping: s.stopping,
	})
	s.onClose(x.Close)
	return x
}
