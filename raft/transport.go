package raft

import (
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"
)

const (
	transportPool    = 3
	transportTimeout = 10 * time.Second
)

// transport is hashicorp's without the heartbeat fast path, which answers heartbeats beside the main
// loop and can make a follower acknowledge a log that it does not have (D4a, hashicorp/raft issue 695).
type transport struct {
	*hraft.NetworkTransport
}

// SetHeartbeatHandler ignores the handler: heartbeats go the way of every other message.
func (transport) SetHeartbeatHandler(func(hraft.RPC)) {}

func newTransport(l net.Listener, log hclog.Logger) transport {
	return transport{hraft.NewNetworkTransportWithLogger(streams{l}, transportPool, transportTimeout, log)}
}

// streams makes a listener a stream layer that takes no connection: one voter has nobody to listen to,
// and hashicorp/raft would believe any caller. The port is held all the same.
type streams struct{ net.Listener }

var _ hraft.StreamLayer = streams{}

// Accept ends every connection until the listener is closed.
func (s streams) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		_ = conn.Close()
	}
}

func (streams) Dial(address hraft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(address), timeout)
}
