// Package offline works on the data directory of a node that does not run: it restores a backup as a
// new cluster (ADR 16), and makes a node the only voter of its cluster after the majority was lost.
//
// The directory is locked meanwhile, and a restored directory gets its name last.
package offline
