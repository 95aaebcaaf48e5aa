// Package raft replicates the log: it is all that touches hashicorp/raft, whose types, errors, logs
// and metrics are translated here and go no further.
//
//	Node.Propose ──► hashicorp/raft ──► logStore (raft-wal, one fsync an entry) ──► commit
//	                                                                                  │
//	Future.Wait  ◄── []storage.Outcome ◄── stateMachine ◄── storage.Store.Apply ◄─────┘
//
// Invariants:
//
//   - A Future answers only after its entry is on stable storage of a majority and applied here
//     (APP-2).
//   - A failed write of the log, and a failed apply, stop the node: Options.Fail is called and
//     nothing is answered any more (D10). hashicorp/raft alone would log the error and go on.
//   - The log drops an entry only when Pebble holds its effects on stable storage (D2).
//   - A node whose log ends before what its store has applied does not start (D2).
//   - A follower that is sent a snapshot is told the index that the sent store holds, and its log
//     begins right after it (D5).
//   - A leader confirms itself by the term of a majority, asked after a read has begun (READ-2),
//     and is ready only in the term whose barrier it has applied.
//   - A node's log never ends in a later term than the one that the node remembers (D3): nothing is
//     sent in a term that is over.
//   - A follower applies only what the leader has sent it, or has checked (APP-2): a request says
//     that no more is committed than that.
//
// The owner gives connections of members only; the transport has the heartbeat fast path and
// pipelines switched off (D4). ADR 14 tells what of hashicorp/raft is not used, and why.
package raft
