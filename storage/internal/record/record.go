package record

import (
	"time"

	"runlog/proto/contract"
)

// Position is a place in the cluster-wide commit order: the log index of a proposal. All events of
// a proposal share it. Clients see it as an opaque token only.
type Position uint64

// Record is an event as stored. It never changes (APP-7).
//
// What a sparse event left out is filled in from its run; Absent still says which fields those are.
type Record struct {
	contract.Recorded

	// Position is that of the proposal. Offset is the number of the record among those of the
	// proposal, in commit order from 0.
	Position Position
	Offset   uint32
	// Previous is the chain digest of the record before it in the run; zeros: there is none. Facts
	// leave it out.
	Previous contract.Digest
}

// Leaf returns the record as a leaf of the tree of all records (TR-1). It must be whole.
func (r *Record) Leaf() contract.Leaf {
	return contract.Leaf{Chain: r.ChainDigest, Position: uint64(r.Position), Offset: r.Offset, PersistedAt: r.PersistedAt}
}

// Persisted returns PersistedAt as a UTC time.
func (r *Record) Persisted() time.Time { return time.Unix(0, r.PersistedAt).UTC() }

// Detail is how much of each record a reader of the log gets.
type Detail int

const (
	// Whole records are those that readers of a run get.
	Whole Detail = iota
	// Facts leave out what costs a hash to work out: the three digests, and keys that were derived.
	Facts
)

// Time turns nanoseconds since 1970 into a UTC time; 0 is the zero time.
func Time(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
