package offline

import (
	"net"
	"sync"
)

// unreached is the listener that package raft requires. It is on no network: while a data directory
// is worked on offline, no other node is contacted, and none may reach it.
type unreached struct {
	closed chan struct{}
	once   sync.Once
}

func newUnreached() *unreached { return &unreached{closed: make(chan struct{})} }

func (l *unreached) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *unreached) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (*unreached) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
