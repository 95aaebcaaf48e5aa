package raft

import hraft "github.com/hashicorp/raft"

// skipCovered removes from a leader's request what this node's snapshot covers, if the log begins
// after the snapshot. The entries of a snapshot are committed, so every leader has the same ones.
//
// hashicorp/raft (v1.8.0) refuses a request whose previous entry is neither in the log nor the
// snapshot's last. The leader then goes back entry by entry: to the beginning of its log, where it
// sends a whole snapshot again, or to entry 1. A request that starts there needs no previous entry,
// and the node would store entries of which its snapshot is the result.
func (n *Node) skipCovered(req *hraft.AppendEntriesRequest) {
	if req.PrevLogEntry == 0 && len(req.Entries) == 0 {
		return // a heartbeat
	}
	first, err := n.logs.FirstIndex()
	if err != nil || first > 0 && first <= req.PrevLogEntry {
		return // as nearly always; newest may have to wait for the disk
	}
	snap := n.snapshots.newest().EntryID
	if req.PrevLogEntry > snap.Index || first > 0 && first <= snap.Index {
		return // hashicorp/raft compares with the log
	}
	if req.PrevLogEntry == snap.Index && req.PrevLogTerm != snap.Term {
		return // of a deposed leader, which hashicorp/raft refuses by its term
	}
	entries := req.Entries
	for len(entries) > 0 && entries[0].Index <= snap.Index {
		if entries[0].Index == snap.Index && entries[0].Term != snap.Term {
			return
		}
		entries = entries[1:]
	}
	// Without a previous entry, hashicorp/raft compares the entries alone.
	req.PrevLogEntry, req.PrevLogTerm, req.Entries = 0, 0, entries
}
