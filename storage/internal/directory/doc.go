// Package directory keeps the data directory of a store: the databases in it, which of them is the
// live one, and the checkpoints that it sends and receives.
//
//	Open ──► Acquire … release, Live ──► Close
//	Checkpoint ──► Stream, or Manifest, ReadFile ──► Close          at the sender
//	Receive, or Seed … Finish ──► Received ──► Install or Discard   at the receiver
//	Adopt                                                           before the first Open
//
// Invariants:
//
//   - CURRENT names the live database. It is replaced as a whole, after the database that it names
//     is whole and on stable storage. So a restart finds the old database or the new one (D5).
//   - A database that was replaced lives until its last reader has released it. Then its files go.
//   - What comes from another node changes nothing of the live database before Install.
//   - Neither a table that is sent nor one that is received has a block that does not match its
//     checksum.
//   - A number names one directory, and is not used again while the process runs.
//   - If Pebble cannot continue after an error, and the database is the live one, the error goes to
//     Options.Fail (D10). An error of a received database ends only its install; one of a replaced
//     database is only logged.
//
// Live and Received.Install have one caller at a time, and neither is called during the other. All
// other functions may be called from any goroutine at any time. Of the rows, the package knows only
// the applied state, the members and the feature level.
package directory
