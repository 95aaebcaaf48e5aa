// Package raft replicates the log. It is the only package that uses hashicorp/raft: it translates
// that library's types, errors, logs and metrics.
//
//	Node.Propose ──► hashicorp/raft ──► logStore (raft-wal, one fsync an entry) ──► commit
//	                                                                                  │
//	Future.Wait  ◄── []storage.Outcome ◄── stateMachine ◄── storage.Store.Apply ◄─────┘
//
// Invariants:
//
//   - A Future answers only after its entry is on stable storage of a majority and applied here
//     (APP-2).
//   - A failed write of the log, and a failed apply, stop the node: it calls Options.Fail and
//     answers no further call (D10). hashicorp/raft alone would log the error and continue.
//   - The log drops an entry only when Pebble holds its effects on stable storage (D2).
//   - If a node's log ends before the last entry that its store has applied, the node does not
//     start (D2).
//   - A leader that sends a snapshot announces the index of the sent store. The follower's log
//     starts right after it, and takes no entry that the snapshot covers (D5).
//   - After a read has begun, a leader asks the other voters for their term. It confirms the read
//     only if a majority is in its own term (READ-2). A leader is ready once it has applied the
//     barrier of its term.
//   - A node's log never ends in a later term than the stored current term (D3): a node sends
//     nothing in a past term.
//   - A node whose directory was put back from an older copy does not take part where a member that
//     remembers more is reached (D3, package witness). Two leaders of one term stop a node, also
//     if it has met only one of them: entries have their leader's nonce (wal.EntryID).
//   - A follower applies only entries that the leader has sent or checked (APP-2): the commit index
//     of a request covers no later entry.
//
// The package's owner passes in connections of members only. The transport disables the heartbeat
// fast path and pipelines (D4). ADR 14 lists the unused parts of hashicorp/raft, with reasons.
package raft
