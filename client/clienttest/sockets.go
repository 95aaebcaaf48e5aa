package clienttest

import (
	"context"
	"io"
	"net"
	"sync"
)

// sockets holds connections and listeners until it is cut.
type sockets struct {
	wire wire
	mu   sync.Mutex
	open map[io.Closer]bool // nil: it is cut
}

func newSockets(w wire) *sockets { return &sockets{wire: w, open: map[io.Closer]bool{}} }

// add keeps what is open. After the cut it closes it and returns an error.
func (s *sockets) add(c io.Closer) error {
	s.mu.Lock()
	cut := s.open == nil
	if !cut {
		s.open[c] = true
	}
	s.mu.Unlock()
	if !cut {
		return nil
	}
	_ = c.Close() // it was just opened
	return net.ErrClosed
}

func (s *sockets) remove(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// cut closes everything, for good.
func (s *sockets) cut() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range open {
		_ = c.Close() // the other end gets the failure
	}
}

// dial connects a host to an address.
func (s *sockets) dial(ctx context.Context, from, address string) (net.Conn, error) {
	conn, err := s.wire.dial(ctx, from, address)
	if err != nil {
		return nil, err
	}
	return s.hold(conn)
}

// listen returns a listener that ends with the cut, and so do its connections.
func (s *sockets) listen(address string) (net.Listener, error) {
	in, err := s.wire.listen(address)
	if err != nil {
		return nil, err
	}
	l := &listener{Listener: in, sockets: s}
	return l, s.add(l)
}

func (s *sockets) hold(conn net.Conn) (net.Conn, error) {
	c := &connection{Conn: conn, sockets: s}
	if err := s.add(c); err != nil {
		return nil, err
	}
	return c, nil
}

type listener struct {
	net.Listener
	sockets *sockets
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.sockets.hold(conn)
}

func (l *listener) Close() error {
	l.sockets.remove(l)
	return l.Listener.Close()
}

type connection struct {
	net.Conn
	sockets *sockets
}

func (c *connection) Close() error {
	c.sockets.remove(c)
	return c.Conn.Close()
}

// RemoteAddr tells the handler of a call on which connection it came.
func (c *connection) RemoteAddr() net.Addr { return peerAddr{c.Conn.RemoteAddr(), c} }

// peerAddr is the address of the other end of a connection.
type peerAddr struct {
	net.Addr
	conn *connection
}
