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

	Position Position
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
