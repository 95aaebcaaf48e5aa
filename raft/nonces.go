package raft

import (
	"fmt"
	"slices"

	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/transport"
	"runlog/raft/internal/wal"
	"runlog/raft/witness"
)

// A member that has forgotten its vote can give a term two leaders, whose entries Raft takes for
// the same. The nonces of entries tell them apart (wal.EntryID), in three places:
//
//   - agree compares what a request names with what this node has, before Raft sees the request.
//   - The log compares the entry before each that it is to store (wal.Options.Conflict). Raft may
//     have been busy with an earlier request while agree looked.
//   - A snapshot is compared with the log before it is installed.
//
// A node that finds another leader's entry in place of its own stops, and keeps its directory: a
// majority may have acknowledged its entry, even if it has not applied it. Package witness notices
// only two leaders that this node has met, one after the other.

// agree stops the node if a leader's request is of another history.
func (n *Node) agree(req *hraft.AppendEntriesRequest) error {
	own, err := n.conflict(req)
	if err == nil && own.Index > 0 {
		err = n.conflicts(own)
		n.fail(err)
	}
	return err
}

// conflict compares the entries that a request names with this node's own: the previous one, and
// those that the node has already. It returns the first one of another leader; zero: there is none.
//
// Raft may still be busy with an earlier request, which changes the log. Whatever this reads has
// been in the log: two nonces in a term are two leaders at any time.
func (n *Node) conflict(req *hraft.AppendEntriesRequest) (own wal.EntryID, err error) {
	last, err := n.logs.LastIndex()
	if err != nil {
		return wal.EntryID{}, err
	}
	compare := func(their wal.EntryID) bool {
		// An empty log may begin after a snapshot. newest would wait for the disk; most requests do
		// not need it.
		if their.Index == 0 || their.Index > last && last > 0 {
			return false
		}
		own, err = n.entry(their.Index)
		return err != nil || own.Conflicts(their)
	}
	before := wal.EntryID{
		Index: req.PrevLogEntry, Term: req.PrevLogTerm, Nonce: wal.ParseNonce(transport.Previous(req)),
	}
	if compare(before) || slices.ContainsFunc(req.Entries, func(e *hraft.Log) bool { return compare(wal.IDOf(e)) }) {
		return own, err
	}
	return wal.EntryID{}, nil
}

// conflicts returns the error of a node that has another entry than a leader at the place of its
// own.
func (n *Node) conflicts(own wal.EntryID) error {
	return n.divergedIn(fmt.Errorf("%w: two entries %d of term %d", witness.ErrTwoLeaders, own.Index, own.Term), own)
}

// entry returns the identity of an entry of the log, or of the last entry that the newest snapshot
// covers; zero: this node has neither.
func (n *Node) entry(index uint64) (wal.EntryID, error) {
	own, err := n.logs.Entry(index)
	if err == nil && own.Index != index {
		own = n.snapshots.newest().EntryID
	}
	if own.Index != index {
		own = wal.EntryID{}
	}
	return own, err
}

// nonceOf implements transport.Sender.Nonce.
func (n *Node) nonceOf(index, term uint64) ([]byte, error) {
	own, err := n.entry(index)
	if err != nil || own.Nonce == 0 {
		return nil, err
	}
	if own.Term != term {
		return nil, transport.ErrNotLeading // a later leader has changed the log
	}
	return wal.FormatNonce(own.Nonce), nil
}
