package storage

import "runlog/storage/internal/bulk"

// ErrBulkFull says that a Bulk has no proposal left to put events into.
var ErrBulkFull = bulk.ErrFull

// Bulk fills a store with whole runs from outside of the log, ten times as fast as Apply.
// Benchmarks and tests use it that need a store which took weeks to grow.
//
//	OpenBulk ─ Add, Add, … ─ Close
//
// A filled store must not join a cluster: its rolling hash is that of the log alone.
type Bulk = bulk.Bulk

// OpenBulk opens a store that nothing else has open. Each of its proposals takes about perProposal
// events. The files grow beside the store's directory, so that it can take them over without a
// copy.
func OpenBulk(opts Options, perProposal int) (*Bulk, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return bulk.Open(opts.directory(), perProposal)
}
