// Package datadir owns a node's data directory: its lock, its format, and the node's identity.
//
// Open makes or opens a directory and locks it. Release unlocks it.
//
// Invariants:
//
//   - One process at a time holds the directory.
//
//   - The directory and its identity are on stable storage before the node relies on them.
package datadir
