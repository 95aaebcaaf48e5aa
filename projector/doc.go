// Package projector tails the log and folds it into projections: the snapshots of runs (package
// run), the list of runs (package list), the tree of records (package tree), smaller ones, and
// those of Options.Projections. It publishes changed runs to subscriptions (package watch).
//
//	storage ──▶ round ──┬──▶ snapshots in memory ──▶ readers, watch
//	  log   │           ├──▶ list, other projections in step ──▶ database
//	        │           └──▶ snapshots that are due ───────────▶ database
//	        └─▶ step of a catch-up ──▶ projections that are behind ──▶ database
//
// # Lifecycle
//
// Open opens the database and starts one goroutine, run. It alone folds and writes. It pulls from
// the store in rounds of about 4,096 events; a round ends at the end of a proposal. Several rounds
// share a write, unless a goroutine waits for the position of a projection. Close stops run, and
// writes and stores what is in memory only.
//
// # Watermarks
//
// The tail has a position, and each projection has a watermark and a format of its own. A
// projection is in step with the tail, or it is behind. A projection that is new, or whose format
// or tables have changed, begins behind, at 0, with empty tables. Between two rounds, run brings it
// on by a step of at most 5 ms. When its watermark reaches the position of the tail, the projection
// is in step. The other projections do not wait for it: rounds write their rows as before. While
// the run snapshots are behind, a snapshot that is not stored yet is folded from the log for each
// reader.
//
// To add a projection, write its package and name it in Options.Projections. To change its tables,
// change its format.
//
// # Invariants
//
//   - Everything up to the position is in the snapshots in memory, or in the database.
//   - Rows of some rounds and their watermarks are written together, before the position of their
//     projections moves.
//   - The state after a crash is the state after some write or step. Folding resumes at the oldest
//     event that is in no stored snapshot. Rows that another projection already has are not written
//     again.
//   - A snapshot that is served has at least the events that the reader's view shows (D9).
//   - The log has everything: a damaged database is replaced by an empty one (PRJ-13).
//
// # Rebuild
//
// Rebuild folds the log into a second database, with a second projector, compares each projection
// with the served one, and replaces the served database.
package projector
