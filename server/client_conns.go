package server

import (
	"net"
	"sync"
)

// clientConns are the open gRPC connections of clients, by the address of the client.
type clientConns struct {
	mu   sync.Mutex
	open map[string]net.Conn // guarded by mu
}

func newClientConns() *clientConns { return &clientConns{open: map[string]net.Conn{}} }

// listen returns a listener whose connections can be cut.
func (c *clientConns) listen(l net.Listener) net.Listener { return &cuttable{l, c} }

// cut closes the connection of a client that does not read an answer. gRPC offers no way to end a
// call that has its answer.
func (c *clientConns) cut(client net.Addr) {
	c.mu.Lock()
	conn := c.open[client.String()]
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

type cuttable struct {
	net.Listener
	all *clientConns
}

// Accept implements net.Listener.
func (l *cuttable) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &cuttableConn{conn, l.all, conn.RemoteAddr().String()}
	l.all.mu.Lock()
	l.all.open[c.client] = c
	l.all.mu.Unlock()
	return c, nil
}

type cuttableConn struct {
	net.Conn
	all    *clientConns
	client string
}

// Close implements net.Conn.
func (c *cuttableConn) Close() error {
	c.all.mu.Lock()
	if c.all.open[c.client] == net.Conn(c) {
		delete(c.all.open, c.client)
	}
	c.all.mu.Unlock()
	return c.Conn.Close()
}
