// Package bulk fills a store with whole runs from outside of the log, ten times as fast as Apply:
// it writes the rows that Apply would have written, sorted, into files that the store then takes
// over as they are. Benchmarks and tests use it that need a store which took weeks to grow.
//
//	Open ─ Add, Add, … ─ Close
//
// Runs go into proposals that the store has applied already, as if those had carried them behind
// everything else. So the log, which knows nothing of them, still reaches as far as the store, and
// a node opens the store as any other. Two things are not as they would be: the rolling hash is
// that of the log alone, so a filled store must not join a cluster; and a projection that has
// passed those proposals does not look at them again, unless its database is deleted.
//
// Invariants:
//
//   - The store takes all files over at once, in Close. Until then it is as it was.
//   - Only then the applied state counts the new runs and events.
package bulk
