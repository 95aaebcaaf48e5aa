// Package streams keeps the connections between the nodes of a group.
package streams

import (
	"errors"
	"net"
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
)

// Layer has all open connections to and from other nodes.
type Layer struct {
	net.Listener
	advertise string
	dial      func(address string, timeout time.Duration) (net.Conn, error)

	mu     sync.Mutex
	closed bool
	open   map[*stream]struct{}
}

var _ hraft.StreamLayer = (*Layer)(nil)

// New returns the connections that a listener accepts and dial makes. Other nodes learn the address
// advertise.
func New(l net.Listener, advertise string, dial func(address string, timeout time.Duration) (net.Conn, error)) *Layer {
	return &Layer{Listener: l, advertise: advertise, dial: dial, open: make(map[*stream]struct{})}
}

// Accept returns the next connection from another node.
func (s *Layer) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return s.keep(conn)
}

// Dial connects to another node.
func (s *Layer) Dial(address hraft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := s.dial(string(address), timeout)
	if err != nil {
		return nil, err
	}
	return s.keep(conn)
}

// Addr returns the advertised address.
func (s *Layer) Addr() net.Addr { return advertised(s.advertise) }

func (s *Layer) keep(conn net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	c := &stream{Conn: conn, s: s}
	s.open[c] = struct{}{}
	return c, nil
}

// Close stops accepting and closes all open connections. hashicorp/raft waits for sends at
// shutdown; a node that does not read would delay it.
func (s *Layer) Close() error {
	s.mu.Lock()
	s.closed = true
	left := s.open
	s.open = nil
	s.mu.Unlock()
	err := s.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	for c := range left {
		_ = c.Conn.Close() // pending reads and writes fail, as intended
	}
	return err
}

// stream is one of the connections.
type stream struct {
	net.Conn
	s *Layer
}

func (c *stream) Close() error {
	c.s.mu.Lock()
	delete(c.s.open, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

// advertised is the address for other nodes.
type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }
