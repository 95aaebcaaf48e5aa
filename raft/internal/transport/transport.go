// Package transport has the messages between the nodes of a group.
package transport

import (
	"errors"
	"io"
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

// Transport is hashicorp's NetworkTransport without the heartbeat fast path. That path answers
// heartbeats outside of the main loop, and can make a follower acknowledge a log that it does not
// have (D4a, hashicorp/raft issue 695).
type Transport struct {
	*hraft.NetworkTransport
	Sender
	Notes
	asked chan hraft.RPC // by others, see Deliver
	over  chan struct{}  // closed by end
	end   func()
}

// Sender is what the transport asks about the node that sends.
type Sender struct {
	Term      func() uint64 // that the node remembers
	Committed func() uint64 // an entry that is known to be committed, with all before it
	Silent    func() bool   // another node should lead, see stamps.Judge
	// Nonce returns the nonce of an entry that this node has; empty: it is not known. It fails if
	// the entry at the index has another term.
	Nonce func(index, term uint64) ([]byte, error)
}

// Notes is what the transport tells about others.
type Notes struct {
	// Led notes the leader of a term; empty: this node. It fails if the term had another one.
	Led func(term uint64, id string) error
	// Acknowledged notes that a member has said in a term that its log reaches an index; 0: that it
	// is in the term.
	Acknowledged func(id string, term, index uint64)
	// Announced notes that a leader begins to send a snapshot, and the nonce of its last entry.
	Announced func(index, term uint64, nonce []byte)
}

// SetHeartbeatHandler ignores the handler: heartbeats go the way of every other message.
func (Transport) SetHeartbeatHandler(func(hraft.RPC)) {}

var (
	// ErrNotLeading ends a send of a past leadership.
	ErrNotLeading = errors.New("raft: leadership term is over")
	// errSilent ends the sends of a leader that must not lead.
	errSilent = errors.New("raft: this node's clock is too far ahead to lead")
)

// AppendEntries sends entries to a follower only while the term of the request lasts. The commit
// index that it sends covers no entry after the last one of the request.
//
// hashicorp/raft (v1.8.0) reads entries and commit index again for each retry, possibly long after
// the node lost its leadership, and sends them with the old term. A node's stored term changes
// before another leader changes its log: the check of the term keeps such entries back.
//
// A follower of hashicorp/raft commits all its entries up to the leader's commit index. Raft wants
// it to stop at the last entry of the request (section 5.3 of the paper): later entries of the
// follower may be of a leader that never committed them.
//
// A leader that has just started sends 0 for the commit index. What it has applied is committed: a
// follower takes that, whatever its stamp is (APP-5).
func (t Transport) AppendEntries(id hraft.ServerID, target hraft.ServerAddress,
	req *hraft.AppendEntriesRequest, resp *hraft.AppendEntriesResponse) error {
	sent, err := t.Prepare(req)
	if err != nil {
		return err
	}
	if t.Term() != req.Term { // whatever Prepare has read was of the term
		return ErrNotLeading
	}
	if err := t.Led(req.Term, ""); err != nil {
		return err
	}
	if err := t.NetworkTransport.AppendEntries(id, target, sent, resp); err != nil {
		return err
	}
	if resp.Success {
		t.Acknowledged(string(id), req.Term, req.PrevLogEntry+uint64(len(req.Entries)))
	}
	return nil
}

// RequestVote asks a voter for its vote.
func (t Transport) RequestVote(id hraft.ServerID, target hraft.ServerAddress, req *hraft.RequestVoteRequest,
	resp *hraft.RequestVoteResponse) error {
	if err := t.NetworkTransport.RequestVote(id, target, req, resp); err != nil {
		return err
	}
	if resp.Granted {
		t.Acknowledged(string(id), resp.Term, 0)
	}
	return nil
}

// RequestPreVote asks for a pre-vote, unless another node should lead.
func (t Transport) RequestPreVote(id hraft.ServerID, target hraft.ServerAddress, req *hraft.RequestPreVoteRequest,
	resp *hraft.RequestPreVoteResponse) error {
	if t.Silent() {
		return errSilent
	}
	return t.NetworkTransport.RequestPreVote(id, target, req, resp)
}

// Prepare returns what is sent of a request.
func (s Sender) Prepare(req *hraft.AppendEntriesRequest) (*hraft.AppendEntriesRequest, error) {
	if s.Silent() {
		return nil, errSilent
	}
	sent := *req
	nonce, err := s.nonce(req.PrevLogEntry, req.PrevLogTerm)
	if err != nil {
		return nil, err
	}
	*previous(&sent) = nonce
	sent.LeaderCommitIndex = min(req.LeaderCommitIndex, req.PrevLogEntry+uint64(len(req.Entries)))
	if n := len(req.Entries); n > 0 {
		sent.LeaderCommitIndex = max(sent.LeaderCommitIndex, min(s.Committed(), req.Entries[n-1].Index))
	}
	return &sent, nil
}

// PrepareSnapshot returns the request with which a snapshot is sent.
func (s Sender) PrepareSnapshot(req *hraft.InstallSnapshotRequest) (*hraft.InstallSnapshotRequest, error) {
	sent := *req
	var err error
	sent.Leader, err = s.nonce(req.LastLogIndex, req.LastLogTerm)
	return &sent, err
}

// nonce returns the nonce of the entry that a request names; nil: it names none.
func (s Sender) nonce(index, term uint64) ([]byte, error) {
	if index == 0 {
		return nil, nil
	}
	return s.Nonce(index, term)
}

// Previous returns the nonce of the previous entry of a request from another node.
func Previous(req *hraft.AppendEntriesRequest) []byte { return *previous(req) }

// previous is where a request has the nonce of its previous entry: in a field that hashicorp/raft
// reads only if the request lacks the address of its sender. Builds of before have an address here,
// which is no nonce.
func previous(req *hraft.AppendEntriesRequest) *[]byte {
	return &req.Leader //nolint:staticcheck // deprecated by hashicorp/raft, and so free
}

// Consumer returns the requests of other nodes.
func (t Transport) Consumer() <-chan hraft.RPC { return t.asked }

// Close ends the transport. It may be called again.
func (t Transport) Close() error {
	t.end()
	return t.NetworkTransport.Close()
}

// Deliver passes requests of other nodes to Raft until the transport closes. It first passes a
// leader's entries to take, which may refuse them, and passes a heartbeat ahead of a snapshot. It
// treats every candidate as a voter, whatever this node's membership says.
//
// A node of hashicorp/raft (v1.8.0) refuses its vote to a node that is no voter in its own
// configuration. In Raft, votes depend on terms and logs alone (section 4.1 of the dissertation).
// Suppose leaders promote nodes and are then lost for good: the promoted nodes may be the only
// electable ones, and would never be elected. The check protects a group from removed nodes;
// pre-votes do that here: a node with a leader grants none.
func (t Transport) Deliver(members func() hraft.ConfigurationFuture, take func(*hraft.AppendEntriesRequest) error) {
	for in := t.NetworkTransport.Consumer(); ; {
		select {
		case rpc := <-in:
			switch req := rpc.Command.(type) {
			case *hraft.AppendEntriesRequest:
				if err := t.heard(req, take); err != nil {
					rpc.Respond(&hraft.AppendEntriesResponse{RPCHeader: req.RPCHeader, Term: req.Term, NoRetryBackoff: true}, err)
					continue
				}
			case *hraft.InstallSnapshotRequest:
				if t.Led(req.Term, string(req.ID)) != nil {
					continue
				}
				t.Announced(req.LastLogIndex, req.LastLogTerm, req.Leader)
				if !t.pass(heartbeatOf(req)) {
					return
				}
			case *hraft.RequestVoteRequest:
				t.Acknowledged(string(req.ID), req.Term, 0)
				// no pre-vote precedes it, and the candidate has the leader's whole log
				if !req.LeadershipTransfer {
					req.ID = nil
				}
			case *hraft.RequestPreVoteRequest:
				servers := members().Configuration().Servers
				if i := slices.IndexFunc(servers, func(s hraft.Server) bool { return s.Suffrage == hraft.Voter }); i >= 0 {
					req.ID = []byte(servers[i].ID) // without one it is refused
				}
			}
			if !t.pass(rpc) {
				return
			}
		case <-t.over:
			return
		}
	}
}

// heard notes a leader's entries, and passes them to take.
func (t Transport) heard(req *hraft.AppendEntriesRequest, take func(*hraft.AppendEntriesRequest) error) error {
	if err := t.Led(req.Term, string(req.ID)); err != nil {
		return err // the node stops
	}
	// A leader syncs what it sends.
	t.Acknowledged(string(req.ID), req.Term, req.PrevLogEntry+uint64(len(req.Entries)))
	return take(req)
}

// pass passes a request to Raft, and reports false if the transport closes first.
func (t Transport) pass(rpc hraft.RPC) bool {
	select {
	case t.asked <- rpc:
		return true
	case <-t.over:
		return false
	}
}

// heartbeatOf returns a heartbeat of the leader that sends a snapshot. Its answer is not read.
//
// A candidate of hashicorp/raft (v1.8.0) that gets a snapshot in its own term notes the leader and
// stays a candidate. Only a follower forgets a leader that is gone. So the node would refuse its
// vote to all others for good. A heartbeat makes it a follower first.
func heartbeatOf(req *hraft.InstallSnapshotRequest) hraft.RPC {
	return hraft.RPC{
		Command:  &hraft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: req.Term},
		RespChan: make(chan hraft.RPCResponse, 1),
	}
}

// InstallSnapshot sends a snapshot to a follower, as long as the term lasts in which it is sent.
func (t Transport) InstallSnapshot(id hraft.ServerID, target hraft.ServerAddress,
	req *hraft.InstallSnapshotRequest, resp *hraft.InstallSnapshotResponse, data io.Reader) error {
	sent, err := t.PrepareSnapshot(req)
	if err != nil {
		return err
	}
	if t.Term() != req.Term {
		return ErrNotLeading
	}
	if err := t.NetworkTransport.InstallSnapshot(id, target, sent, resp, data); err != nil {
		return err
	}
	if resp.Success {
		t.Acknowledged(string(id), req.Term, req.LastLogIndex)
	}
	return nil
}

// New returns a transport over connections.
func New(s hraft.StreamLayer, log hclog.Logger, from Sender, to Notes) Transport {
	over := make(chan struct{})
	return Transport{
		NetworkTransport: hraft.NewNetworkTransportWithConfig(&hraft.NetworkTransportConfig{
			Stream: s, MaxPool: transportPool, Timeout: transportTimeout, Logger: log,
			// No pipeline: it can block forever after a rejected entry (D4b).
			MaxRPCsInFlight: 1,
		}),
		Sender: from, Notes: to, asked: make(chan hraft.RPC), over: over, end: sync.OnceFunc(func() { close(over) }),
	}
}
