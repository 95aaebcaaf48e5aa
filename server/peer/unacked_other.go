//go:build !linux

package peer

import (
	"net"
	"time"
)

// endUnacked does nothing: gRPC and Raft end the connection later.
func endUnacked(*net.TCPConn, time.Duration) {}
