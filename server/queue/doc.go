// Package queue serves QueueService: requests for runs, the leases of workers, and the queues in
// which the runs wait (docs/queue.md). The machine of the same name has the state and decides; this
// package checks requests, makes the events of the authority, lets calls wait, and keeps the time.
//
//	RequestRun ─► Check, CreateRun, append RunQueued, Request     one command (QUE-1)
//	LeaseRuns ──► Lease, if there is a run; else the call waits
//	                ▲ a queue has changed (storage.Store.WatchRows): waiters wakes the calls that
//	                │ have waited longest, one for each run that may be leased
//	ReleaseLease ► Release, and of a start its reference and events one command (QUE-7)
//	ticker ─────► Tick when a timer is due; Expire and RunFailed for a run without attempts left
//
// Where an event depends on the state of the run, as the last release of a failed start does, the
// call reads the run, and the machine refuses the command if the run has changed meanwhile
// (*queue.ChangedError). The call then decides again.
//
// Lifecycle: New starts the ticker, which works while the node leads. Close ends it. Calls that
// wait end with the leadership, without leases, and with Options.Stopping.
//
// Invariant: no call waits for a run that may be leased, unless another call was woken for it.
package queue
