// Package offline changes the data directory of a node that is not running. Restore makes a new
// cluster from a backup (ADR 16). Recover makes a node the only voter of its cluster after the
// majority is lost. Salvage writes the events that a node has and that the other members have lost
// (ADR 25).
//
// Both lock the directory while they run. A restored directory gets its final name last, so that an
// interrupted restore leaves nothing that a node could start from.
package offline
