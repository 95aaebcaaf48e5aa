package clienttest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a disk in memory that knows what was synced.
type disk struct {
	vfs.FS // mem
	mem    *vfs.MemFS
	// cloning keeps clones away from the two operations that take MemFS's clone lock twice: with a
	// clone in between, both would wait forever.
	cloning sync.RWMutex
}

func newDisk() *disk { return diskOf(vfs.NewCrashableMem()) }

func diskOf(mem *vfs.MemFS) *disk { return &disk{FS: mem, mem: mem} }

// losePower returns the disk with what was synced.
func (d *disk) losePower() *disk {
	d.cloning.Lock()
	defer d.cloning.Unlock()
	return diskOf(d.mem.CrashClone(vfs.CrashCloneCfg{}))
}

// Link is that of MemFS.
func (d *disk) Link(from, to string) error {
	d.cloning.RLock()
	defer d.cloning.RUnlock()
	return d.mem.Link(from, to)
}

// ReuseForWrite is that of MemFS.
func (d *disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	d.cloning.RLock()
	defer d.cloning.RUnlock()
	return d.mem.ReuseForWrite(from, to, c)
}

// network holds connections and listeners until it is cut.
type network struct {
	mu   sync.Mutex
	open map[io.Closer]bool // nil: it is cut
}

func newNetwork() *network { return &network{open: map[io.Closer]bool{}} }

// add keeps what is open. After the cut it closes it and returns an error.
func (n *network) add(c io.Closer) error {
	n.mu.Lock()
	cut := n.open == nil
	if !cut {
		n.open[c] = true
	}
	n.mu.Unlock()
	if !cut {
		return nil
	}
	_ = c.Close() // it was just opened
	return net.ErrClosed
}

func (n *network) remove(c io.Closer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, c)
}

// cut closes everything, for good.
func (n *network) cut() {
	n.mu.Lock()
	open := n.open
	n.open = nil
	n.mu.Unlock()
	for c := range open {
		_ = c.Close() // the other end gets the failure
	}
}

// drop closes the connection from an address.
func (n *network) drop(from net.Addr) {
	n.mu.Lock()
	var found net.Conn
	for c := range n.open {
		if conn, ok := c.(net.Conn); ok && conn.RemoteAddr().String() == from.String() {
			found = conn
		}
	}
	n.mu.Unlock()
	if found != nil {
		_ = found.Close() // the client gets the failure
	}
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return n.hold(conn)
}

// listen returns a listener that ends with the cut, and so do its connections.
func (n *network) listen(in net.Listener) net.Listener {
	l := &listener{Listener: in, net: n}
	_ = n.add(in) // a cut network has closed it, which Accept reports
	return l
}

func (n *network) hold(conn net.Conn) (net.Conn, error) {
	c := &connection{Conn: conn, net: n}
	if err := n.add(c); err != nil {
		return nil, err
	}
	return c, nil
}

type listener struct {
	net.Listener
	net *network
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.net.hold(conn)
}

type connection struct {
	net.Conn
	net *network
}

func (c *connection) Close() error {
	c.net.remove(c)
	return c.Conn.Close()
}

// listenFree listens on a free port of the loopback address. Systems do not choose it for other
// connections, which could take it while the node is down.
func listenFree() (l net.Listener, err error) {
	for range 1000 {
		if l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))); err == nil {
			return l, nil
		}
	}
	return nil, err
}
