// Package network carries the connections of a simulated cluster in fake time.
package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Network carries connections between hosts in fake time. It is a network of streams, as TCP gives
// them to a process: the bytes of one connection arrive in order, once, late, or not at all. Calls
// are lost, duplicated and reordered as on a real network. Lost: a connection is reset after the
// request was sent. Duplicated: it is reset after the request arrived and before the answer did,
// and the caller sends again. Reordered: of two connections, the later one is faster. All of this
// happens to Raft's calls and to clients' calls.
type Network struct {
	mu        sync.Mutex
	rng       *rand.Rand // of latencies; under mu
	listeners map[string]*listener
	chosen    int // how many ports are taken by port 0 and by dialling hosts
	hosts     int // how many hosts Host has named
	conns     map[*conn]struct{}
	cut       map[Link]int           // how many faults cut a link
	refused   map[Link]int           // how many faults refuse connections on a link
	slow      map[Link]time.Duration // added to the latency of every piece
	changed   chan struct{}          // closed when a link opens
	counts    map[string]int         // of what happened, by kind
}

// Link is one direction between two hosts.
type Link struct{ From, To string }

const (
	// Latency of a piece, without faults.
	minLatency = 100 * time.Microsecond
	maxLatency = 500 * time.Microsecond
	// windowBytes that were written and not read make a writer wait.
	windowBytes = 1 << 20
	// backlog is how many connections may wait to be accepted.
	backlog = 128
)

// New returns a network whose latencies are drawn from a seed.
func New(seed uint64) *Network {
	return &Network{
		rng: rand.New(rand.NewPCG(seed, 0x6e6574)), listeners: map[string]*listener{}, conns: map[*conn]struct{}{},
		cut: map[Link]int{}, refused: map[Link]int{}, slow: map[Link]time.Duration{}, changed: make(chan struct{}), counts: map[string]int{},
	}
}

// address is an address of a host that has a name and no IP address.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// addrOf returns an address as package net does, if its host is an IP address.
func addrOf(at string) net.Addr {
	if ip, err := netip.ParseAddrPort(at); err == nil {
		return net.TCPAddrFromAddrPort(ip)
	}
	return address(at)
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// Ports that are chosen for port 0, and for the end that dials, lie between these. Those below are
// for tests that name one.
const firstPort, lastPort = 40_000, 65_000

// Host names a loopback host that no call has named before.
func (n *Network) Host() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts++
	return net.IPv4(127, 0, byte(1+n.hosts/250), byte(n.hosts%250+1)).String()
}

// port returns a port that no listener has; n.mu is held.
func (n *Network) port() string {
	for {
		port := strconv.Itoa(firstPort + n.chosen%(lastPort-firstPort))
		n.chosen++
		free := true
		for at := range n.listeners {
			free = free && !strings.HasSuffix(at, ":"+port)
		}
		if free {
			return port
		}
	}
}

// Listen accepts connections at an address, as net.Listen does for TCP. For port 0 it chooses a
// free one.
func (n *Network) Listen(_, at string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if host, port, err := net.SplitHostPort(at); err == nil && port == "0" {
		at = net.JoinHostPort(host, n.port())
	}
	if n.listeners[at] != nil {
		return nil, fmt.Errorf("listen %s: %w", at, syscall.EADDRINUSE)
	}
	l := &listener{net: n, at: at, queue: make(chan *conn, backlog), done: make(chan struct{})}
	n.listeners[at] = l
	return l, nil
}

type listener struct {
	net   *Network
	at    string
	queue chan *conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Addr() net.Addr { return addrOf(l.at) }

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept, and resets the connections that were not accepted.
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

// Dialer returns Dial from a host.
func (n *Network) Dialer(from string) func(ctx context.Context, to string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) { return n.Dial(ctx, from, to) }
}

// Dial connects a host to an address. It waits until both directions are open.
func (n *Network) Dial(ctx context.Context, from, to string) (net.Conn, error) {
	there, back := Link{from, hostOf(to)}, Link{hostOf(to), from}
	for {
		n.mu.Lock()
		open, changed := n.cut[there] == 0 && n.cut[back] == 0, n.changed
		wait := n.latency(there) + n.latency(back)
		n.mu.Unlock()
		timer := time.NewTimer(wait)
		if !open {
			timer.Stop() // TCP repeats a connection request until it arrives
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

// deadlineError returns the error that package net returns for a context's error.
func deadlineError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return err
}

// connect makes a connection, unless ctx has ended.
func (n *Network) connect(ctx context.Context, from, to string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: deadlineError(err)}
	}
	l := n.listeners[to]
	if l == nil || n.refused[Link{from, hostOf(to)}] > 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: syscall.ECONNREFUSED}
	}
	there, back := n.newPipe(Link{from, hostOf(to)}), n.newPipe(Link{hostOf(to), from})
	near, far := addrOf(net.JoinHostPort(from, n.port())), addrOf(to)
	ours := &conn{net: n, in: back, out: there, local: near, remote: far, dialled: true}
	theirs := &conn{net: n, in: there, out: back, local: far, remote: near}
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
func (n *Network) latency(l Link) time.Duration {
	return minLatency + time.Duration(n.rng.Int64N(int64(maxLatency-minLatency))) + n.slow[l]
}

// Block cuts a link, and Open restores it. Pieces on their way wait meanwhile, as TCP sends them
// again.
func (n *Network) Block(l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[l]++
}

// Open ends Block.
func (n *Network) Open(l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[l]--; n.cut[l] == 0 {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// Refuse resets the connections between two hosts and refuses new ones until Admit, as a firewall
// that rejects them.
func (n *Network) Refuse(a, b string) {
	n.RefuseFrom(a, b)
	n.RefuseFrom(b, a)
	n.ResetBetween(a, b, false)
}

// Admit ends Refuse.
func (n *Network) Admit(a, b string) {
	n.AdmitFrom(a, b)
	n.AdmitFrom(b, a)
}

// RefuseFrom refuses new connections that one host makes to another, until AdmitFrom.
func (n *Network) RefuseFrom(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[Link{from, to}]++
}

// AdmitFrom ends RefuseFrom.
func (n *Network) AdmitFrom(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[Link{from, to}]--
}

// Delay adds to the latency of a link.
func (n *Network) Delay(l Link, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[l] += d
}

// ResetBetween resets the connections between two hosts, and returns the number of their ends. With
// late, what was sent still arrives.
func (n *Network) ResetBetween(a, b string, late bool) int {
	ends := n.between(func(from, to string) bool { return from == a && to == b || from == b && to == a })
	for _, c := range ends {
		c.breakOff(late)
	}
	return len(ends)
}

// Drop resets all connections of a host and closes its listeners: the host has lost its power.
func (n *Network) Drop(host string) {
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

func (n *Network) between(match func(from, to string) bool) (found []*conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if match(c.out.link.From, c.out.link.To) {
			found = append(found, c)
		}
	}
	return found
}

// forget removes an end of a connection from conns.
func (n *Network) forget(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// isCut reports whether a link is cut, and returns a channel that is closed when one opens.
func (n *Network) isCut(l Link) (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[l] > 0, n.changed
}

// conn is one end of a connection.
type conn struct {
	net           *Network
	in, out       *pipe
	local, remote net.Addr
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

// reset ends both directions. The other end gets the error too, when its link is open.
func (c *conn) reset() { c.breakOff(false) }

// breakOff resets a connection, and both ends get the error. With late, what the dialling end sent
// still arrives, and nothing comes back.
func (c *conn) breakOff(late bool) {
	if late && !c.dialled {
		return // the other end breaks both directions
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
