package raft

import (
	"fmt"

	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/transport"
	"runlog/raft/internal/wal"
	"runlog/raft/stamps"
	"runlog/storage"
)

// sender is the node, as the transport sees it.
func (n *Node) sender() transport.Sender {
	return transport.Sender{Term: n.stable.Term, Committed: n.committed, Silent: n.opts.Stamps.Silent, Nonce: n.nonceOf}
}

// committed returns the index of an entry that this node knows to be committed, with all earlier
// ones.
func (n *Node) committed() uint64 { return max(n.opts.Store.Applied().Index, n.marked) }

// take prepares a leader's request for Raft. It refuses a request of another history, see agree. It
// refuses the request if the stamp of an uncommitted entry is too far ahead, as if the entries had
// not arrived: neither the log nor the term changes, and the leader can commit nothing with this
// node.
func (n *Node) take(req *hraft.AppendEntriesRequest) error {
	for _, e := range req.Entries {
		if err := wal.Received(e); err != nil {
			return err
		}
	}
	if err := n.agree(req); err != nil {
		return err
	}
	for _, e := range req.Entries {
		if e.Index <= req.LeaderCommitIndex || e.Type != hraft.LogCommand || e.Index <= n.committed() {
			continue
		}
		if stamp, is := storage.StampOf(e.Data); is {
			if err := n.opts.Stamps.Accept(stamp); err != nil {
				return fmt.Errorf("raft: refuse entry %d: %w", e.Index, err)
			}
			// Entries of earlier terms may be old.
			if e.Term == req.Term && req.Term >= n.stable.Term() {
				n.opts.Stamps.Follow(stamp)
			}
		}
	}
	n.skipCovered(req)
	return nil
}

// Stamps returns what makes this node's stamps.
func (n *Node) Stamps() *stamps.Judge { return n.opts.Stamps }

// Elected reports whether this node is the leader of its term, even if it takes no proposals yet.
// It takes none while it cannot commit what its log has from before.
func (n *Node) Elected() bool { return n.raft.State() == hraft.Leader }

// Uncommitted returns the highest stamp in the part of the log that is not known to be committed; 0
// without one. Another leader must replace an entry that no majority accepts.
func (n *Node) Uncommitted() (stamp int64) {
	last := n.raft.LastIndex()
	for i := max(n.raft.CommitIndex(), n.committed()) + 1; i <= last; i++ {
		var l hraft.Log
		if n.logs.GetLog(i, &l) != nil {
			return stamp // Dropped meanwhile; GetLog reports any other error.
		}
		if at, is := storage.StampOf(l.Data); is && l.Type == hraft.LogCommand {
			stamp = max(stamp, at)
		}
	}
	return stamp
}
