package storagetest

import (
	"errors"

	"runlog/storage"
)

// Client is what can be done with a store from anywhere. One goroutine uses it.
type Client interface {
	// Propose applies requests, in order, as one proposal whose leader's clock shows clock
	// nanoseconds, and returns their outcomes.
	Propose(clock int64, requests []Request) ([]storage.Outcome, error)
	// Run returns a run, or *storage.RunNotFoundError.
	Run(runID string) (*storage.Run, error)
	// Events returns the run's records with runSeq above after.
	Events(runID string, after uint64) ([]storage.Record, error)
	// Reopen closes the store as in a planned restart, and opens it again.
	Reopen() error
	// Close ends the test.
	Close() error
}

// System is a store as the suite drives it from within.
type System interface {
	Client
	// Log returns what was committed after a position, in commit order.
	Log(after storage.Position) ([]storage.Commit, error)
	// Applied tells how far the store is.
	Applied() storage.Applied
}

// Request is one command as its caller means it: exactly one of the fields is set.
type Request struct {
	Append *storage.Append
	SetRef *SetRef
	// Fence is the only request of its proposal, which no API can carry.
	Fence *SetFence
}

// SetFence raises a run's fence, as the operation of a lease does (QUE-6).
type SetFence struct {
	RunID string
	Fence uint64
}

// SetRef asks to record the engine's reference of a run (APP-12).
type SetRef struct {
	RunID string
	Ref   string
}

func (r Request) runID() string {
	switch {
	case r.Append != nil:
		return r.Append.RunID
	case r.Fence != nil:
		return r.Fence.RunID
	}
	return r.SetRef.RunID
}

var errNoRequest = errors.New("storagetest: empty request")

// Encode returns the command that goes into the log.
func (r Request) Encode() (storage.Command, error) {
	switch {
	case r.Append != nil:
		return storage.EncodeAppend(r.Append)
	case r.SetRef != nil:
		return storage.EncodeSetEngineRunRef(r.SetRef.RunID, r.SetRef.Ref)
	default:
		return storage.Command{}, errNoRequest
	}
}
