// Package replica is the node as the services see it: the store, Raft, the batcher, the admission
// by disk space, and the one place that waits for a leader.
//
//	services ── Append, Execute ──► admission ──► batch ──► raft ──► storage ── outcome ──┐
//	   ▲                            (disk, memory)                                        │
//	   └──────────────────────────────────────────────────────────────────────────────────┘
//	services ── ReadIndex, View ──► the leader confirms itself ──► applied here ──► storage
//	rpc      ── AtLeader ─────────► the leader, here or over its link (server/cluster)
//
// Lifecycle: Open opens the store, lets the cluster install the state if the store lacks it, and
// starts Raft and the batcher. Close ends them in the reverse order. All readers of the store must
// end before Close.
//
// Invariants:
//
//   - A command that Propose has admitted has one outcome, or an error that states whether it may
//     be stored.
//   - Only AtLeader waits for a leader, at most Options.LeaderWait.
//   - A refused request releases the memory that it holds before its caller gets the error.
package replica
