package target

import (
	"context"
	"runlog/bench/report"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// System is what is measured: runlog, or a peer that does the same work.
type System struct {
	// Name in the report.
	Name string
	// Open makes a fresh instance that keeps its data under dir, which is empty and the caller's,
	// or connects to one that runs already.
	Open func(ctx context.Context, dir string) (Target, error)
	// Sparse systems number the events of a run in rising order, but not without gaps.
	Sparse bool
}

// Target is an open System. It is safe for concurrent use; Close ends what Open began.
type Target interface {
	// Append stores the events of one run, or recognises them, and answers as AppendEvents does:
	// once they are durable, one result for each. It makes one try, so that every failure is
	// counted.
	Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error)
	Close() error
}

// Streamer is a Target with a streaming append (append-stream).
type Streamer interface {
	OpenStream(ctx context.Context) (Stream, error)
}

// Stream carries many requests at once and answers in their order. Send and CloseSend have one
// caller, Recv another one.
type Stream interface {
	Send(req *runlogv1.AppendEventsRequest) error
	CloseSend() error
	Recv() (*runlogv1.AppendStreamResponse, error)
}

// Reader is a Target that is read while it is written to (mixed-read). Reads are linearizable.
type Reader interface {
	GetRun(ctx context.Context, runID string) (*runlogv1.Run, error)
	GetSnapshot(ctx context.Context, runID string) (*runlogv1.RunSnapshot, error)
	// ListEvents returns the page of events after a runSeq.
	ListEvents(ctx context.Context, runID string, afterSeq uint64) ([]*runlogv1.EventRecord, error)
}

// Watcher is a Target whose runs can be followed (watch).
type Watcher interface {
	// Watch has one watcher follow each of runs, which may name a run many times, and returns once
	// all have caught up. It is given up when ctx ends before that; afterwards they end with Close.
	// told is called with the number of a watcher and what it has heard, one call at a time for
	// each watcher.
	Watch(ctx context.Context, runs []string, told func(watcher int, m Mark)) (Watches, error)
}

// Watches are open watchers.
type Watches interface {
	// Err is why one has ended that was not closed.
	Err() error
	Close() error
}

// Mark is how far a watcher hears that its run is.
type Mark struct {
	Seq uint64
	// PersistedAt is when the event Seq was persisted, and At when this was heard, in nanoseconds
	// since 1970.
	PersistedAt int64
	At          time.Time
}

// Auditor is a Target whose windows of time can be asked for (audit).
type Auditor interface {
	QueryEvents(ctx context.Context, req *runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error)
	// ExportEvents gives each message to read, and returns what the last one says.
	ExportEvents(ctx context.Context, req *runlogv1.ExportEventsRequest, read func(*runlogv1.ExportEventsResponse)) (*runlogv1.ExportSummary, error)
	// DrainExport reads an export without decoding it.
	DrainExport(ctx context.Context, req *runlogv1.ExportEventsRequest) (bytes uint64, err error)
	VerifyRun(ctx context.Context, runID string) (*runlogv1.VerifyRunResponse, error)
}

// Restarter is a Target that can be killed and brought back (recovery).
type Restarter interface {
	// Kill ends the process as SIGKILL does and returns once it is gone.
	Kill() error
	// Restart starts the process again on the same data and returns before it serves.
	Restart() error
}

// Group is a Target of several nodes of which one leads (failover, transfer). Nodes are told apart
// by their number.
type Group interface {
	// Routes are the nodes, one by one. They stay when a node is killed and come back with it.
	Routes() []Target
	// Leader returns the node that leads, once there is one.
	Leader(ctx context.Context) (int, error)
	// KillNode ends a node's process as SIGKILL does and returns once it is gone.
	KillNode(node int) error
	// RestartNode starts it again on the same data and returns before it serves.
	RestartNode(node int) error
	// InSync returns once every node is ready, counts for a majority and has applied what was
	// committed before the call.
	InSync(ctx context.Context) error
	// TransferLeadership asks the node that leads to have another one lead.
	TransferLeadership(ctx context.Context, leader int) error
}

// Checker is a Target that can say, after it was measured, why that was not what was to be
// measured.
type Checker interface {
	Check(ctx context.Context) error
}

// Meter is a Target that knows what its process has used so far.
type Meter interface {
	Usage() (report.Usage, error)
}

// Describer is a Target that can say which version and settings are measured.
type Describer interface {
	Describe() []report.Fact
}
