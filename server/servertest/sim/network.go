package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// network carries connections between hosts in fake time. It is a network of streams, as TCP gives
// them to a process: bytes of one connection arrive in order, once, late, or not at all. What a
// message protocol calls lost is a connection that is reset after its bytes were sent; duplicated,
// one that is reset after they have arrived and before the answer did, so that they are sent again;
// reordered, two connections of which the later one is faster. All of it happens to Raft's calls
// and to clients'.
type network struct {
	mu        sync.Mutex
	rng       *rand.Rand // of latencies; under mu
	listeners map[string]*listener
	conns     map[*conn]struct{}
	cut       map[link]int           // how many faults cut a way
	refused   map[link]int           // how many faults refuse connections of one host to another
	slow      map[link]time.Duration // is added to every piece on a way
	dialled   map[link]int           // attempts to connect that were refused or accepted
	changed   chan struct{}          // closed when a way opens
	counts    map[string]int         // of what happened, by kind
}

// link is the way from one host to another; the other way is another link.
type link struct{ from, to string }

const (
	// Latency of a piece, without faults.
	minLatency = 100 * time.Microsecond
	maxLatency = 500 * time.Microsecond
	// windowBytes that were written and not read make a writer wait.
	windowBytes = 1 << 20
	// backlog of connections that nobody has accepted.
	backlog = 128
)

func newNetwork(seed uint64) *network {
	return &network{
		rng: rand.New(rand.NewPCG(seed, 0x6e6574)), listeners: map[string]*listener{}, conns: map[*conn]struct{}{},
		cut: map[link]int{}, refused: map[link]int{}, dialled: map[link]int{}, slow: map[link]time.Duration{}, changed: make(chan struct{}), counts: map[string]int{},
	}
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// listen takes connections at an address.
func (n *network) listen(at string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[at] != nil {
		return nil, fmt.Errorf("listen %s: %w", at, syscall.EADDRINUSE)
	}
	l := &listener{net: n, at: at, queue: make(chan *conn, backlog), done: make(chan struct{})}
	n.listeners[at] = l
	return l, nil
}

type listener struct {
	net   *network
	at    string
	queue chan *conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Addr() net.Addr { return address(l.at) }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept, and resets what nobody has accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		if l.net.listeners[l.at] == l {
			delete(l.net.listeners, l.at)
		}
		l.net.mu.Unlock()
		close(l.done)
		for {
			select {
			case c := <-l.queue:
				c.reset()
				continue
			default:
			}
			return
		}
	})
	return nil
}

// dial connects a host to an address: a way there and a way back must be open.
func (n *network) dial(ctx context.Context, from, to string) (net.Conn, error) {
	there, back := link{from, hostOf(to)}, link{hostOf(to), from}
	for {
		n.mu.Lock()
		open, changed := n.cut[there] == 0 && n.cut[back] == 0, n.changed
		wait := n.latency(there) + n.latency(back)
		n.mu.Unlock()
		timer := time.NewTimer(wait)
		if !open {
			timer.Stop() // a connection request is sent again until it arrives
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: deadlineError(ctx.Err())}
		case <-changed:
			timer.Stop()
			continue
		case <-timer.C:
		}
		return n.connect(ctx, from, to)
	}
}

// deadlineError is what package net makes of a context's end.
func deadlineError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return err
}

// connect makes a connection; from an end of ctx on it makes none.
func (n *network) connect(ctx context.Context, from, to string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: deadlineError(err)}
	}
	n.dialled[link{from, hostOf(to)}]++
	l := n.listeners[to]
	if l == nil || n.refused[link{from, hostOf(to)}] > 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: syscall.ECONNREFUSED}
	}
	there, back := n.newPipe(link{from, hostOf(to)}), n.newPipe(link{hostOf(to), from})
	ours := &conn{net: n, in: back, out: there, local: address(from + ":0"), remote: address(to), dialled: true}
	theirs := &conn{net: n, in: there, out: back, local: address(to), remote: address(from + ":0")}
	there.back, back.back = back, there
	select {
	case l.queue <- theirs:
	default:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: syscall.ECONNREFUSED}
	}
	n.conns[ours], n.conns[theirs] = struct{}{}, struct{}{}
	return ours, nil
}

// latency of one piece; n.mu is held.
func (n *network) latency(l link) time.Duration {
	return minLatency + time.Duration(n.rng.Int64N(int64(maxLatency-minLatency))) + n.slow[l]
}

// block and open cut a way and mend it. Pieces that are under way wait, as TCP sends them again.
func (n *network) block(l link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[l]++
}

func (n *network) open(l link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[l]--; n.cut[l] == 0 {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// refuse resets the connections between two hosts, and lets neither connect to the other until
// admit: attempts fail at once, as where a firewall rejects them.
func (n *network) refuse(a, b string) {
	n.mu.Lock()
	n.refused[link{a, b}]++
	n.refused[link{b, a}]++
	n.mu.Unlock()
	n.resetBetween(a, b, false)
}

func (n *network) admit(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[link{a, b}]--
	n.refused[link{b, a}]--
}

// attempts tells how often one host tried to connect to another.
func (n *network) attempts(from, to string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dialled[link{from, to}]
}

// delay adds to the latency of a way.
func (n *network) delay(l link, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[l] += d
}

// resetBetween resets the connections between two hosts, and tells how many ends there were. What
// was sent may still arrive: late says so.
func (n *network) resetBetween(a, b string, late bool) int {
	ends := n.between(func(from, to string) bool { return from == a && to == b || from == b && to == a })
	for _, c := range ends {
		c.breakOff(late)
	}
	return len(ends)
}

// drop resets everything that a host has: its power is gone, and nothing that it sends arrives any
// more.
func (n *network) drop(host string) {
	for _, c := range n.between(func(from, to string) bool { return from == host || to == host }) {
		c.breakOff(false)
	}
	n.mu.Lock()
	var mine []*listener
	for at, l := range n.listeners {
		if hostOf(at) == host {
			mine = append(mine, l)
		}
	}
	n.mu.Unlock()
	for _, l := range mine {
		_ = l.Close()
	}
}

func (n *network) between(match func(from, to string) bool) (found []*conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if match(c.out.link.from, c.out.link.to) {
			found = append(found, c)
		}
	}
	return found
}

// forget ends the bookkeeping of a connection's end.
func (n *network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// isCut tells whether a way is cut, and what is closed when it opens.
func (n *network) isCut(l link) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[l] > 0, n.changed
}

// conn is one end of a connection.
type conn struct {
	net           *network
	in, out       *pipe
	local, remote address
	dialled       bool // this end dialled
	once          sync.Once
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }

// Close sends what was written, and then the end.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = nil
		c.out.end(io.EOF, false)
		c.in.shut()
		c.net.forget(c)
	})
	return err
}

// reset ends both directions; the other end meets the error too, once it may.
func (c *conn) reset() { c.breakOff(false) }

// breakOff is a reset that both ends notice. Where late is set, what the end that dialled has sent
// still arrives, and nothing comes back.
func (c *conn) breakOff(late bool) {
	if late && !c.dialled {
		return // its other end sees to both
	}
	c.out.end(syscall.ECONNRESET, !late)
	c.in.end(syscall.ECONNRESET, true)
}

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	c.out.setWriteDeadline(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.in.setReadDeadline(t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.setWriteDeadline(t); return nil }
