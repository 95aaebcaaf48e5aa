package raft

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"
)

const (
	transportPool    = 3
	transportTimeout = 5 * time.Second
)

// transport is hashicorp's without the heartbeat fast path, which answers heartbeats beside the
// main loop and can make a follower acknowledge a log that it does not have (D4a, hashicorp/raft
// issue 695).
type transport struct {
	*hraft.NetworkTransport
	term  func() uint64  // that the node remembers
	asked chan hraft.RPC // by others, see deliver
	over  chan struct{}  // closed by end
	end   func()
}

// SetHeartbeatHandler ignores the handler: heartbeats go the way of every other message.
func (transport) SetHeartbeatHandler(func(hraft.RPC)) {}

// errNotLeading ends the sending of what a node had to say while it led.
var errNotLeading = errors.New("raft: the term in which this node led is over")

// AppendEntries sends entries to a follower, as long as the term lasts in which they are sent, and
// calls nothing committed but what it sends, or what comes before.
//
// hashicorp/raft (v1.8.0) reads the entries, and what is committed, when it tries again, perhaps
// long after the node has lost the leadership, and sends them with the term in which it led. A
// node's term changes before another leader changes its log: so what was read in between is not
// sent.
//
// A follower of hashicorp's takes everything for committed that it has, up to what the leader says
// is; Raft wants it to stop at the last entry of the request (section 5.3 of the paper). What a
// follower has behind that may be of a leader whose entries never were.
func (t transport) AppendEntries(id hraft.ServerID, target hraft.ServerAddress,
	req *hraft.AppendEntriesRequest, resp *hraft.AppendEntriesResponse) error {
	if t.term() != req.Term {
		return errNotLeading
	}
	sent := *req
	sent.LeaderCommitIndex = min(req.LeaderCommitIndex, req.PrevLogEntry+uint64(len(req.Entries)))
	return t.NetworkTransport.AppendEntries(id, target, &sent, resp)
}

// Consumer returns what other nodes ask of this one.
func (t transport) Consumer() <-chan hraft.RPC { return t.asked }

// Close ends the transport. It may be called again.
func (t transport) Close() error {
	t.end()
	return t.NetworkTransport.Close()
}

// deliver gives Raft what other nodes ask, until the transport is closed. Who wants a vote counts
// as a voter, whatever this node knows of it.
//
// A node of hashicorp's (v1.8.0) votes for nobody who is no voter by the configuration that it has
// itself; Raft has votes depend on the terms and the logs alone (section 4.1 of the dissertation).
// Where leaders are lost for good after they have made other nodes voters, those that are left and
// know can be the only ones that can be elected, and never would be. What that check is for, that
// who was removed leaves the others in peace, is seen to by pre-votes: whoever has a leader gives
// none.
func (t transport) deliver(members func() hraft.ConfigurationFuture) {
	for in := t.NetworkTransport.Consumer(); ; {
		select {
		case rpc := <-in:
			switch req := rpc.Command.(type) {
			case *hraft.RequestVoteRequest:
				// there is no pre-vote before one, and who is told to stand has the leader's whole
				// log
				if !req.LeadershipTransfer {
					req.ID = nil
				}
			case *hraft.RequestPreVoteRequest:
				servers := members().Configuration().Servers
				if i := slices.IndexFunc(servers, func(s hraft.Server) bool { return s.Suffrage == hraft.Voter }); i >= 0 {
					req.ID = []byte(servers[i].ID) // without one it is refused
				}
			}
			select {
			case t.asked <- rpc:
			case <-t.over:
				return
			}
		case <-t.over:
			return
		}
	}
}

// InstallSnapshot sends a snapshot to a follower, as long as the term lasts in which it is sent.
func (t transport) InstallSnapshot(id hraft.ServerID, target hraft.ServerAddress,
	req *hraft.InstallSnapshotRequest, resp *hraft.InstallSnapshotResponse, data io.Reader) error {
	if t.term() != req.Term {
		return errNotLeading
	}
	return t.NetworkTransport.InstallSnapshot(id, target, req, resp, data)
}

func newTransport(s *streams, log hclog.Logger, term func() uint64) transport {
	over := make(chan struct{})
	return transport{
		NetworkTransport: hraft.NewNetworkTransportWithConfig(&hraft.NetworkTransportConfig{
			Stream: s, MaxPool: transportPool, Timeout: transportTimeout, Logger: log,
			// No pipeline: it can block for ever after an entry was rejected (D4b).
			MaxRPCsInFlight: 1,
		}),
		term: term, asked: make(chan hraft.RPC), over: over, end: sync.OnceFunc(func() { close(over) }),
	}
}

// streams are the connections to and from other nodes, of which it knows all that are open.
type streams struct {
	net.Listener
	advertise string
	dial      func(address string, timeout time.Duration) (net.Conn, error)

	mu     sync.Mutex
	closed bool
	open   map[*stream]struct{}
}

var _ hraft.StreamLayer = (*streams)(nil)

func newStreams(o *Options) *streams {
	return &streams{Listener: o.Listener, advertise: o.Advertise, dial: o.Dial, open: make(map[*stream]struct{})}
}

// Accept returns the next connection of another node.
func (s *streams) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return s.keep(conn)
}

// Dial connects to another node.
func (s *streams) Dial(address hraft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := s.dial(string(address), timeout)
	if err != nil {
		return nil, err
	}
	return s.keep(conn)
}

// Addr is the address that the other nodes are told.
func (s *streams) Addr() net.Addr { return advertised(s.advertise) }

func (s *streams) keep(conn net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	c := &stream{Conn: conn, s: s}
	s.open[c] = struct{}{}
	return c, nil
}

// Close takes no more connections and ends those that are open. hashicorp/raft waits for what is
// being sent when it shuts down, and would wait long for a node that takes nothing.
func (s *streams) Close() error {
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
		_ = c.Conn.Close() // what is on it fails, as it should
	}
	return err
}

// stream is one of the connections.
type stream struct {
	net.Conn
	s *streams
}

func (c *stream) Close() error {
	c.s.mu.Lock()
	delete(c.s.open, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

// advertised is an address as the other nodes are told it.
type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

// dialPlain connects to nodes that listen on a port of their own.
func dialPlain(address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", address, timeout)
}
