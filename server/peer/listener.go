package peer

import (
	"fmt"
	"net"
	"sync"
)

// backlog bounds the queued connections of each kind after their handshake.
const backlog = 64

// listener returns the accepted connections of one kind.
type listener struct {
	mesh  *Mesh
	kind  Kind
	queue chan net.Conn
	done  chan struct{}

	mu     sync.Mutex // guards closed; nothing is queued once it is set
	closed bool
}

var _ net.Listener = (*listener)(nil)

// Listener accepts the authenticated connections of a kind; each is a *Conn. It panics while
// another listener of the kind is open. Closing it leaves the mesh open; until the next listener,
// the mesh refuses connections of the kind.
func (m *Mesh) Listener(kind Kind) net.Listener {
	l := &listener{mesh: m, kind: kind, queue: make(chan net.Conn, backlog), done: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.listeners[kind] != nil {
		panic(fmt.Sprintf("peer: a listener of kind %v is open already", kind))
	}
	if m.mu.closed {
		l.closed = true
		close(l.done)
		return l
	}
	m.mu.listeners[kind] = l
	return l
}

// listenerOf returns nil if the kind has no listener.
func (m *Mesh) listenerOf(kind Kind) *listener {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.listeners[kind]
}

// deliver queues a connection; false: the queue is full or the listener is closed.
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

// Close ends Accept and closes the queued connections.
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
