// Package cluster makes a node part of a cluster: how nodes find each other, which nodes are
// admitted, and how they ask each other.
//
//	New ──► Form ──► (state transfer, if the node lacks the state) ──► Attach ──► member
//	 │        │                                                          │
//	 │        ├ founds a cluster with the expected nodes                 ├ asks to be a member,
//	 │        └ or joins one that exists                                 │ and reports its address
//	 └ other nodes may ask for its state, and invite it                  └ answers other nodes
//
// One connection to each other node carries node calls (proto/node/v1), and client calls forwarded
// to the leader. The package server/peer authenticates the peer.
//
// Invariants:
//
//   - A node belongs to one cluster forever, from the moment that its identity has the cluster on
//     stable storage.
//   - One node founds a cluster and invites the others. None of these can found another one in the
//     meantime, or be invited twice.
//   - A node's Raft ID includes a number made with its data directory: a wiped data directory gets
//     a new Raft ID.
//   - A node without its data does not take part: it could vote again in a term in which it has
//     voted.
package cluster
