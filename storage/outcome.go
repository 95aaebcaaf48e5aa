package storage

import (
	"errors"
	"fmt"

	"runlog/proto/contract"
)

// Outcome is what applying one command gave. It is a pure function of the log up to there.
type Outcome struct {
	// Err is why the command stored nothing: one of this package's error types, or nil.
	Err error
	// Results answer for each event of an Append, in the request's order.
	Results []EventResult
	// Created: the command made the run.
	Created bool
	// LastSeq is the run's highest runSeq after the command.
	LastSeq uint64
	// Ended: the run is over for certain after the command.
	Ended bool
	// Answers are those of a command that EncodeCommand made, one for each operation. Err is then
	// that of the operation that was refused, and there are no Results.
	Answers []Answer
	// Position and PersistedAt (nanoseconds) are those of the proposal.
	Position    Position
	PersistedAt int64
}

// refuse records why a command stores nothing, if it does not, and says whether.
func (o *Outcome) refuse(why error) bool {
	o.Err = why
	return why != nil
}

// EventResult answers for one event.
type EventResult struct {
	// EventID, RunSeq and PersistedAt are the stored event's. The EventID of a duplicate may be
	// another one than its request has.
	EventID     contract.EventID
	RunSeq      uint64
	PersistedAt int64
	// Duplicate: the key was there already and nothing was inserted (IDM-6).
	Duplicate bool
	// SameContent: the duplicate's content is byte for byte the stored one. If not, the
	// node that answers compares the two as JSON values before it reports a divergence (IDM-7).
	SameContent bool
	// Attempt is that of the event, if the authority assigned it (IDM-10); else 0.
	Attempt uint32
}

// ErrNotDurable means that Pebble has not yet flushed what a caller wants to rely on.
var ErrNotDurable = errors.New("storage: not flushed yet")

// SequenceError says that a conditional append met another last runSeq than it expected (APP-4).
type SequenceError struct {
	RunID    string
	Expected uint64
	Last     uint64
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("run %q is at runSeq %d, not at the expected %d", e.RunID, e.Last, e.Expected)
}

// StatusError says that a run was not settled: the types of its events do not allow the status that
// its snapshot has (PRJ-17).
type StatusError struct {
	RunID  string
	Status contract.RunStatus
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("run %q was not settled: its events do not allow the status %v of its snapshot; "+
		"rebuild the projection",
		e.RunID, e.Status)
}

// KeyTakenError says that another event has the key of one that must be new (Append.OnlyNew).
type KeyTakenError struct {
	RunID string
	Index int      // of the event in its request
	Key   [32]byte // SHA-256 of its key
	// RunSeq is that of the other event, which is stored, or comes before it in the command.
	RunSeq uint64
}

func (e *KeyTakenError) Error() string {
	return fmt.Sprintf("event %d of the request has the key of the event with runSeq %d of run %q",
		e.Index, e.RunSeq, e.RunID)
}

// LeaseLostError says that a request was sent under another fence than the run's current one
// (QUE-8).
type LeaseLostError struct {
	RunID   string
	Given   uint64
	Current uint64 // 0: the run was never leased
}

func (e *LeaseLostError) Error() string {
	return fmt.Sprintf("run %q has fence %d, not the given %d", e.RunID, e.Current, e.Given)
}

// ImportError says that an imported event does not fit its run as it is here.
type ImportError struct {
	RunID string
	Index int // of the event in its request
	// Field is runSeq, which is not above that of the event before, or idempotencyKey, under which
	// another event is stored.
	Field  string
	Given  uint64 // runSeq
	Before uint64 // that of the event before it, in the request or else in the run
}

func (e *ImportError) Error() string {
	if e.Field == "idempotencyKey" {
		return fmt.Sprintf("run %q already has another event under the key of event %d of the import", e.RunID, e.Index)
	}
	return fmt.Sprintf("event %d of the import has runSeq %d, which must be above %d: run %q is there already",
		e.Index, e.Given, e.Before, e.RunID)
}
