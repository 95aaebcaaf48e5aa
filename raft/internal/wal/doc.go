// Package wal keeps a node's durable Raft state: the log, the term and the vote, and the commit
// mark.
//
//	<node>/wal/*.wal     segments of the log, raft-wal's format; zeros where nothing is written
//	<node>/wal/meta      which segments make up the log
//	<node>/vote          current term, last vote (Stable)
//	<node>/commit-mark   how far the log was once committed (Mark)
//
// Lifecycle: OpenMark, OpenStable, Open; then hashicorp/raft uses Log and Stable; Close.
//
// Invariants:
//
//   - StoreLogs returns after its entries are on stable storage (APP-2).
//   - After a failed write, or a failed read of an entry, Fail is called: the node stops (D3, D10).
//   - Each entry carries the nonces of its leader and of the entry before, and a checksum over its
//     index, term, type, nonces and data. GetLog checks it. No entry is stored behind another one
//     than it names (D3).
//   - Open leaves the content of a log that ends before the commit mark as it is. The node compares
//     the log with the mark, its store and its newest snapshot, and refuses it with TooShort (D2).
//   - Behind the last entry of an open log there are zeros: repairTail wipes what a torn write has
//     left (D2).
//
// Errors begin with "raft:", because the node returns them as they are.
package wal
