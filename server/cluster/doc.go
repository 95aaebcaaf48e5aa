// Package cluster makes a node one of several: how nodes find each other, who may belong to them,
// and how they ask each other.
//
//	New ──► Form ──► (a seed, where the node lacks what the cluster has) ──► Attach ──► member
//	 │        │                                                                │
//	 │        ├ founds a cluster with the nodes that it was told to expect     ├ asks to become a member, and
//	 │        └ or joins one that exists                                       │ goes on being known under its address
//	 └ other nodes may ask how it is, and invite it                            └ answers all that nodes ask
//
// One connection to each other node carries what nodes ask each other (proto/node/v1), and the
// calls of clients that a node passes on to the leader. The package server/peer makes sure who is
// at the other end.
//
// Invariants:
//
//   - A node belongs to one cluster for ever, from the moment that its identity says so on stable
//     storage.
//   - One node founds a cluster, and tells the others; none of those can found another meanwhile,
//     or be told twice.
//   - The name of a node in Raft has a number made with its data directory: a wiped disk is another
//     node.
//   - A node without its data does not take part: it would vote again where it has voted.
package cluster
