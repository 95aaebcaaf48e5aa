// Package read reads what apply left in the database: a run, the log in commit order, the events of
// a window of time, and the heads of all runs.
//
//	FindRun, FindFirst
//	OpenView ──► Events, Verify ──► Close
//	Follow, FollowAhead ──► Log, Log, … ──► Close
//	PositionRangeOf ──► OpenWindow ──► Next, Next, … ──► Close
//	Changes, OpenHeads ──► Run, Groups ──► Close
//
// Invariants:
//
//   - A reader sees one snapshot of one database. Acquire keeps the database until the reader is
//     closed, also if an install replaces it meanwhile.
//   - Apply adds a run to Changes under the lock under which the run's new head becomes visible. So
//     the changes that OpenHeads takes are those of its snapshot.
//   - A reader writes nothing, and the caller may keep what it returns.
//   - One goroutine uses a reader. Readers and Apply run at the same time.
package read
