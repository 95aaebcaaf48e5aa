// Package datadir owns a node's data directory: its lock, its format, and what the node is.
//
// Open makes or opens a directory and locks it, Release gives it up. What is in the directory is on
// stable storage before the node relies on it.
package datadir
