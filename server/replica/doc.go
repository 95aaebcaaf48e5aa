// Package replica is the node as the services see it: the store, Raft, the batcher, the disk's
// admission, and the one place that waits for a leader.
//
//	services ── Append, Execute ──► admission ──► batch ──► raft ──► storage ── outcome ──┐
//	   ▲                            (disk, memory)                                        │
//	   └──────────────────────────────────────────────────────────────────────────────────┘
//	services ── ReadIndex, View ──► the leader confirms itself ──► applied here ──► storage
//	rpc      ── AtLeader ─────────► the leader, here or over its link (server/cluster)
//
// Lifecycle: Open opens the store, lets the cluster fill it where it lacks state, and starts Raft
// and the batcher. Close ends them in the reverse order. Whatever reads from the store ends before.
//
// Invariants:
//
//   - A command that Propose has admitted has one outcome, or an error that says whether it may be
//     stored.
//   - Only AtLeader waits for a leader, at most Options.LeaderWait.
//   - What a refused request has taken of memory is given back before the refusal leaves.
package replica
