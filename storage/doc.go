// Package storage is the deterministic engine under the Raft log: it applies proposals to Pebble
// and reads back what they left.
//
//	request goroutine          batcher              every node
//	EncodeAppend ──► Command ──► Proposal ──► log ──► Store.Apply ──► one Pebble batch
//	  digests, bodies,           header,               dedupe, runSeq, persistedAt,
//	  compression                CRC32C                chain, receipts, applied state
//
// Invariants:
//
//   - Apply is a pure function of the store and the entry's bytes (D11): no clock, no randomness,
//     no configuration, no map order.
//   - A proposal's effects and the applied state are one batch (D2), so that Pebble, which runs
//     without a write-ahead log, holds an exact prefix of the Raft log after a crash. Entries at or
//     below the applied index are skipped.
//   - A command is one append, or several operations that take effect together or not at all
//     (compound.go). An operation is the core's or a Machine's, which sees the store through a Tx.
//   - The log has no operation that the feature level does not allow, and the level never falls
//     (level.go).
//   - Records lie in commit order in chunks; places, receipts and heads point at them (D6).
//   - The store is replaced by another node's checkpoint as a whole or not at all (D5), and never
//     by an older one.
//   - Any error out of Apply is final: the caller must stop the process (D10).
//
// The parts that know nothing of Apply have packages of their own below internal:
//
//	record     bytes of commands, proposals and rows
//	keys       the key space
//	overlay    rows that a proposal has written and the database does not show yet
//	rowcache   rows of machines that were read or written most recently
//	read       readers of runs, of the log, of windows and of heads
//	directory  the data directory: databases, CURRENT, checkpoints that are sent and received
//	stream     the form of a checkpoint on its way
//	files      files and directories that survive a loss of power
//
// Package table is the kit of machines: keys, rows and pages of their tables.
//
// Apply, ApplyMembership and Received.Install have one caller at a time. All readers, Checkpoint,
// Receive and Seed may be called from any goroutine at any time.
package storage
