package storage

import (
	"runlog/storage/internal/directory"
	"runlog/storage/internal/read"
	"runlog/storage/internal/record"
	"runlog/storage/internal/stream"
)

// What the log and the chunks are made of has its home in record; these are its public names.
type (
	// Position is a place in the commit order.
	Position = record.Position
	// Record is an event as stored.
	Record = record.Record
	// Detail is how much of each record a reader of the log gets.
	Detail = record.Detail

	// Command is one encoded request to the state machine.
	Command = record.Command
	// Append is a validated request to store events of one run.
	Append = record.Append
	// Assigned is what the authority of a run had assigned to an event.
	Assigned = record.Assigned
	// Creation is what CreateRun says about a run.
	Creation = record.Creation
	// Scope is where a run belongs.
	Scope = record.Scope
	// Bucket is a hash partition of the store.
	Bucket = record.Bucket
	// Metadata is what CreateRun said of a run.
	Metadata = record.Metadata
	// PlanRef points at the plan of a run.
	PlanRef = record.PlanRef
	// MigrationHint is that of a PlanRef.
	MigrationHint = record.MigrationHint
	// ReceiptKey is the secret of a cluster that receipts are keyed with.
	ReceiptKey = record.ReceiptKey
	// Operation is one part of a compound command.
	Operation = record.Operation
	// Proposal builds one log entry out of encoded commands.
	Proposal = record.Proposal
	// ClusterID names a cluster.
	ClusterID = record.ClusterID
	// Incarnation names one history of a cluster's log.
	Incarnation = record.Incarnation

	// Applied is how far a store is.
	Applied = record.Applied
	// Membership is the members of the group, as the log named them last.
	Membership = record.Membership

	// RunExistsError says that a run's metadata is already set to something else (APP-12).
	RunExistsError = record.RunExistsError
	// UnscopedError says that the first event of a run does not name where the run belongs (ENV-1).
	UnscopedError = record.UnscopedError
	// ScopeError says that an event names another scope than its run's (APP-6).
	ScopeError = record.ScopeError
	// BuildTooOldError says that the build does not support the feature level of a store.
	BuildTooOldError = record.BuildTooOldError
)

// What reads the store has its home in read; these are its public names.
type (
	// Run is what the store knows about a run without its events.
	Run = read.Run
	// View is one consistent state of a run and its events. It must be closed.
	View = read.View
	// Verification is what a run looks like on the disk.
	Verification = read.Verification
	// Commit is what one proposal did to one run, in commit order.
	Commit = read.Commit
	// Follower reads the log in commit order.
	Follower = read.Follower
	// Ahead is a Follower that reads on while its user works.
	Ahead = read.Ahead
	// PositionRange is a half-open range of positions.
	PositionRange = read.PositionRange
	// WindowFilter selects events.
	WindowFilter = read.WindowFilter
	// WindowCursor is a place in the commit order, before an event.
	WindowCursor = read.WindowCursor
	// WindowReader reads the events of a range of positions that a filter selects.
	WindowReader = read.WindowReader

	// Heads is a snapshot of the heads of all runs. It must be closed.
	Heads = read.Heads

	// RunNotFoundError says that no run has this id.
	RunNotFoundError = read.RunNotFoundError
)

// What becomes of the data directory has its home in directory; these are its public names.
type (
	// Checkpoint is a whole state of the store, in hard links to the store's files. It must be
	// closed.
	Checkpoint = directory.Checkpoint
	// CheckpointFile is one of a checkpoint's files.
	CheckpointFile = stream.File
	// Promise is the state that the files of a checkpoint must hold, as its giver describes it.
	Promise = directory.Promise
)

// Details of the records that a reader of the log gets.
const (
	Whole = record.Whole
	Facts = record.Facts
)

// StampOf returns the stamp that a leader gave to a log entry, unchecked; false: the entry is no
// proposal. Apply stamps later than the entry before, if need be.
func StampOf(entry []byte) (int64, bool) { return record.ClockOf(entry) }

// CoreLevel is the feature level of the core's operations, and of a store whose level was never
// raised.
const CoreLevel = record.CoreLevel

var (
	// ErrForeign means that a log entry, a checkpoint or the store itself belongs to another
	// cluster (D1).
	ErrForeign = record.ErrForeign
	// ErrClosed means that the store was closed.
	ErrClosed = directory.ErrClosed
	// ErrCheckpoint means that what came as a checkpoint is none, or not the one that it says it
	// is.
	ErrCheckpoint = stream.ErrCheckpoint
	// ErrNotInCheckpoint means that a checkpoint has no such file, or that the file ends before the
	// offset.
	ErrNotInCheckpoint = directory.ErrNotInCheckpoint
	// ErrOlder means that a checkpoint reaches less far than the store, and was not installed: what
	// a store has applied never goes back.
	ErrOlder = directory.ErrOlder
	// ErrChecksum means that a file of a seed was not what its sender has, and is gone; it is to be
	// pulled again.
	ErrChecksum = directory.ErrChecksum
	// ErrNoRoom means that the disk has less room than a checkpoint still needs.
	ErrNoRoom = directory.ErrNoRoom
	// ErrSeeding means that the store has a Seed already.
	ErrSeeding = directory.ErrSeeding
	// ErrPromise means that the files of a checkpoint do not hold what was said of them.
	ErrPromise = directory.ErrPromise
)

// RunGroup is the number of runs, with consecutive numbers, for which Heads reports changes
// together.
const RunGroup = read.RunGroup

// GlobalBucket holds no run.
const GlobalBucket = record.GlobalBucket

// EncodeAppend turns a request into the command that goes into the log. All events must name the
// same scope or leave it out: ScopeOf tells.
func EncodeAppend(a *Append) (Command, error) { return record.EncodeAppend(a) }

// AppendOperation turns a request into an operation of a compound command. EncodeAppend is for a
// command that has nothing else.
func AppendOperation(a *Append) (Operation, error) { return record.AppendOperation(a) }

// EncodeCommand makes a command of 1 to 1,000 operations. They take effect together or not at all,
// in their order: each sees what those before it have written. Its Outcome has one Answer each.
//
// Operations that are likely to be refused come first: to undo a few is cheaper.
func EncodeCommand(operations ...Operation) (Command, error) {
	return record.EncodeCommand(operations...)
}

// EncodeOne is EncodeCommand of the one operation that its constructor has returned.
func EncodeOne(op Operation, err error) (Command, error) {
	if err != nil {
		return Command{}, err
	}
	return EncodeCommand(op)
}

// ScopeOf returns the scope that a request's events name between them. Two that differ cannot be of
// one run: *ScopeError (APP-6).
func ScopeOf(a *Append) (Scope, error) { return record.ScopeOf(a) }

// NewProposal starts a proposal with room for size bytes of commands.
func NewProposal(cluster ClusterID, size int) *Proposal { return record.NewProposal(cluster, size) }
