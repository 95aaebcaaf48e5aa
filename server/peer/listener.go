package peer

import (
	"fmt"
	"net"
	"sync"
)

// backlog of connections that passed the handshake and that nobody accepted yet, of each kind.
const backlog = 64

// listener hands out the accepted connections of one kind.
type listener struct {
	mesh  *Mesh
	kind  Kind
	queue chan net.Conn
	done  chan struct{}

	mu     sync.Mutex // guards closed, and that nothing is queued once it is set
	closed bool
}

var _ net.Listener = (*listener)(nil)

// Listener takes the connections of a kind that passed the handshake; each is a *Conn. There is one
// listener of a kind at a time: it panics while another is open. Closing it leaves the mesh open,
// and others are refused until the next is made.
func (m *Mesh) Listener(kind Kind) net.Listener {
	l := &listener{mesh: m, kind: kind, queue: make(chan net.Conn, backlog), done: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.listeners[kind] != nil {
		panic(fmt.Sprintf("peer: connections of kind %v are listened for already", kind))
	}
	if m.mu.closed {
		l.closed = true
		close(l.done)
		return l
	}
	m.mu.listeners[kind] = l
	return l
}

// listenerOf returns nil where nobody takes connections of the kind.
func (m *Mesh) listenerOf(kind Kind) *listener {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.listeners[kind]
}

// deliver queues a connection; false: the queue is full or nobody will take from it.
func (l *listener) deliver(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	select {
	case l.queue <- c:
		return true
	default:
		return false
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and the connections that nobody accepted.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.done)
	l.mu.Unlock()

	l.mesh.mu.Lock()
	delete(l.mesh.mu.listeners, l.kind)
	l.mesh.mu.Unlock()
	for {
		select {
		case c := <-l.queue:
			_ = c.Close()
		default:
			return nil
		}
	}
}

func (l *listener) Addr() net.Addr { return l.mesh.Addr() }
