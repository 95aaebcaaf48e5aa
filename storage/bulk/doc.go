// Package bulk fills a store with whole runs from outside of the log, ten times as fast as Apply:
// it writes the rows that Apply would have written, sorted, into files that the store then takes
// over as they are. It is for benchmarks and tests that need a store which would take weeks to
// grow.
//
//	Open ─ Add, Add, … ─ Close
//
// The store gets the runs as if they had been the last commands of proposals that it has already
// applied. The log does not contain the runs, but it still reaches as far as the store, so a node
// opens the store like any other. Apply would have led to another result in two ways. The rolling
// hash covers the log alone, so a filled store must not join a cluster. A projection that has
// passed those proposals does not see the runs, unless its database is deleted.
//
// Only the load generator and tests link the package. It writes what storage/internal lays down, so
// it may import these parts of the store as storage does.
//
// Invariants:
//
//   - The store takes all files over at once, in Close. Until then it is as it was.
//   - The applied state counts the new runs and events only after that.
package bulk
