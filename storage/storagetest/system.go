package storagetest

import (
	"errors"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/metadata"
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
	Update *Update
	Write  *Write
	// Compound are the operations of one command. None of them is compound.
	Compound []Request
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

// Update asks to replace metadata of a run (APP-12).
type Update struct {
	RunID  string
	Update metadata.Update
}

// runIDs are the runs that the request is about.
func (r Request) runIDs() (names []string) {
	switch {
	case r.Append != nil:
		return []string{r.Append.RunID}
	case r.Fence != nil:
		return []string{r.Fence.RunID}
	case r.SetRef != nil:
		return []string{r.SetRef.RunID}
	case r.Update != nil:
		return []string{r.Update.RunID}
	}
	for _, op := range r.Compound {
		names = append(names, op.runIDs()...)
	}
	return names
}

var errNoRequest = errors.New("storagetest: empty request")

// Encode returns the command that goes into the log.
func (r Request) Encode() (storage.Command, error) {
	switch {
	case r.Append != nil:
		return storage.EncodeAppend(encoded(r.Append))
	case r.Compound != nil:
		operations := make([]storage.Operation, len(r.Compound))
		for i, op := range r.Compound {
			var err error
			if operations[i], err = op.operation(); err != nil {
				return storage.Command{}, err
			}
		}
		return storage.EncodeCommand(operations...)
	default:
		op, err := r.operation()
		if err != nil {
			return storage.Command{}, err
		}
		return storage.EncodeCommand(op)
	}
}

// operation returns the part of a compound command.
func (r Request) operation() (storage.Operation, error) {
	switch {
	case r.Append != nil:
		return storage.AppendOperation(encoded(r.Append))
	case r.SetRef != nil:
		return metadata.Set(r.SetRef.RunID, r.SetRef.Ref, contract.Author{}, nil)
	case r.Update != nil:
		return metadata.UpdateOperation(r.Update.RunID, r.Update.Update, contract.Author{})
	case r.Write != nil:
		return r.Write.operation()
	default:
		return storage.Operation{}, errNoRequest
	}
}
