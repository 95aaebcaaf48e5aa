package target

import (
	"context"
	"time"

	"runlog/bench/report"

	runlogv1 "runlog/proto/runlog/v1"
)

// System is a system under measurement: runlog, or a peer that does the same work.
type System struct {
	// Name in the report.
	Name string
	// Open makes a fresh instance with its data under dir, which is empty and owned by the caller,
	// or connects to a running one.
	Open func(ctx context.Context, dir string) (Target, error)
	// OpenWatched, if not nil, is called in place of Open where an instance needs room for many
	// streams at a time.
	OpenWatched func(ctx context.Context, dir string, streams int) (Target, error)
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

// Stream carries many concurrent requests and answers in their order. One goroutine calls Send and
// CloseSend, another one Recv.
type Stream interface {
	Send(req *runlogv1.AppendEventsRequest) error
	CloseSend() error
	Recv() (*runlogv1.AppendStreamResponse, error)
}

// Gatherer is a Target whose client library gathers the calls of many callers (append-gather).
type Gatherer interface {
	// OpenGathered returns the same system through such a client. Close ends the client alone.
	OpenGathered() (Target, error)
}

// Reader is a Target that is read while it is written to (mixed-read). Reads are linearizable.
type Reader interface {
	GetRun(ctx context.Context, runID string) (*runlogv1.Run, error)
	GetSnapshot(ctx context.Context, runID string) (*runlogv1.RunSnapshot, error)
	// ListEvents returns the page of events after a runSeq.
	ListEvents(ctx context.Context, runID string, afterSeq uint64) ([]*runlogv1.EventRecord, error)
}

// Queuer is a Target with a queue of runs (queue, queue-idle).
type Queuer interface {
	// OpenQueue returns a queue of its own for a number of workers. Close ends what it began.
	OpenQueue(ctx context.Context, workers int) (Queue, error)
}

// Queue gives each run that is requested to one worker.
type Queue interface {
	// Request enters a run. It returns once the request is durable.
	Request(ctx context.Context, runID string) error
	// Take waits for a run.
	Take(ctx context.Context) (Job, error)
	Close() error
}

// Job is a run that a worker has alone.
type Job interface {
	RunID() string
	// Started stores the run's RunStarted, and takes the run out of the queue. It returns once both
	// are durable.
	Started(ctx context.Context) error
}

// Leaser is a Target that leases runs: it refuses events under another fence (append-fenced).
type Leaser interface {
	// Lease requests a run in a queue of its own, and leases it. It returns the fence.
	Lease(ctx context.Context, req *runlogv1.RequestRunRequest) (fence uint64, err error)
}

// Signaller is a Target that takes signals to runs, and tells engines of them (signal).
type Signaller interface {
	// Begin makes a run that takes signals.
	Begin(ctx context.Context, runID string) error
	// Signal sends a signal and returns once it is decided.
	Signal(ctx context.Context, runID, signalID string) error
	// Signals calls told with the signalId of each accepted signal to any run that was begun, in
	// one goroutine, until ctx ends. No signal is missed once ready was called.
	Signals(ctx context.Context, ready func(), told func(signalID string)) error
}

// Subscriber is a Target that delivers stored events to consumers (consume).
type Subscriber interface {
	// Subscribe returns a new consumer of all events, from the first one on.
	Subscribe(ctx context.Context) (Consumer, error)
}

// Consumer gets each event once, if it acknowledges all. One goroutine uses it.
type Consumer interface {
	// Next acknowledges the events that it has returned, and returns how many it has got after
	// them.
	Next(ctx context.Context) (events int, err error)
	Close() error
}

// Bus is a Target whose subscriptions the bench makes as it needs them (webhook, sink-nats,
// sink-kafka, delivery-lag, append-subscribed, append-dead-sink).
type Bus interface {
	// Deliver makes a subscription as a request says, under an id of its own.
	Deliver(ctx context.Context, req *runlogv1.CreateSubscriptionRequest) (Subscription, error)
}

// Subscription is one that Deliver has made.
type Subscription interface {
	// Consume connects a consumer. If told is not nil, it gets each event, from the goroutine that
	// calls Next. Close of the consumer ends a Next.
	Consume(told func(*runlogv1.EventRecord)) (Consumer, error)
	// State returns the subscription with its last error.
	State(ctx context.Context) (*runlogv1.Subscription, error)
	// Close deletes it.
	Close() error
}

// Receivers is a Target beside which servers of NATS and Kafka can run (sink-nats, sink-kafka).
type Receivers interface {
	// OpenReceiver starts one, by the name of its workload.
	OpenReceiver(ctx context.Context, workload string) (Receiver, error)
}

// Receiver is a server to which subscriptions deliver.
type Receiver interface {
	// Open makes an inbox.
	Open(ctx context.Context) (Inbox, error)
	// Close ends the server.
	Close() error
}

// Inbox is the place of one subscription in a Receiver. One goroutine uses it.
type Inbox interface {
	// Delivery is how a subscription delivers to it.
	Delivery() *runlogv1.Delivery
	// Received returns how many events have come so far.
	Received(ctx context.Context) (int, error)
	Close() error
}

// Watcher is a Target with watches of runs (watch).
type Watcher interface {
	// Watch opens one watcher for each entry of runs, which may repeat a run, and returns once all
	// have caught up. If ctx ends before that, Watch fails; afterwards only Close ends the
	// watchers. told is called with the number of a watcher and its mark, one call at a time for
	// each watcher.
	Watch(ctx context.Context, runs []string, told func(watcher int, m Mark)) (Watches, error)
}

// Watches are open watchers.
type Watches interface {
	// Err is why one has ended that was not closed.
	Err() error
	Close() error
}

// Mark is a watcher's view of its run's position.
type Mark struct {
	Seq uint64
	// PersistedAt is when the event Seq was persisted, in nanoseconds since 1970, and At when the
	// watcher received it.
	PersistedAt int64
	At          time.Time
}

// Auditor is a Target with audit windows (audit).
type Auditor interface {
	QueryEvents(ctx context.Context, req *runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error)
	// ExportEvents calls read for each message, and returns the summary.
	ExportEvents(ctx context.Context, req *runlogv1.ExportEventsRequest, read func(*runlogv1.ExportEventsResponse)) (*runlogv1.ExportSummary, error)
	// DrainExport reads an export without decoding it.
	DrainExport(ctx context.Context, req *runlogv1.ExportEventsRequest) (bytes uint64, err error)
	VerifyRun(ctx context.Context, runID string) (*runlogv1.VerifyRunResponse, error)
}

// Restarter is a Target that can be killed and brought back (recovery).
type Restarter interface {
	// Kill ends the process with SIGKILL and returns once it is gone.
	Kill() error
	// Restart starts the process again on the same data and returns before it serves.
	Restart() error
}

// Group is a Target of several nodes with one leader (failover, transfer). Nodes are numbered.
type Group interface {
	// Routes are the nodes. A route stays valid while its node is down.
	Routes() []Target
	// Leader returns the leading node, once there is one.
	Leader(ctx context.Context) (int, error)
	// KillNode ends a node's process with SIGKILL and returns once it is gone.
	KillNode(node int) error
	// RestartNode starts it again on the same data and returns before it serves.
	RestartNode(node int) error
	// InSync returns once every node is ready, is a voter and has applied the entries that were
	// committed before the call.
	InSync(ctx context.Context) error
	// TransferLeadership asks the leader to make another node the leader.
	TransferLeadership(ctx context.Context, leader int) error
}

// Checker is a Target that can invalidate a measurement afterwards.
type Checker interface {
	Check(ctx context.Context) error
}

// Meter is a Target that knows its process's usage.
type Meter interface {
	Usage() (report.Usage, error)
}

// Describer is a Target that describes its version and settings.
type Describer interface {
	Describe() []report.Fact
}
