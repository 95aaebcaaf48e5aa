// Package engine starts the runs of queues in workflow engines (QUE-11).
//
//	r, err := engine.New(engine.Options{Client: c, Starter: myEngine, Worker: "worker-1"})
//	err = r.Run(ctx) // until ctx ends; or r.DequeueAndStart(ctx) once
//
// # The life of a start
//
//	LeaseRuns ─► Starter.Start ─► ReleaseLease STARTED, with the reference and RunStarted
//	    ▲           │ error
//	    │           ├─ ErrSkip         ─► ReleaseLease SKIPPED: the authority appends RunCancelled
//	    │           ├─ *PermanentError ─► append RunFailed under the fence
//	    │           └─ any other       ─► ReleaseLease FAILED ─┐
//	    └──────────────────────────────────── after a backoff ─┘
//
// A Reconciler keeps no state. If it is killed, it holds its leases until they expire. Then another
// one leases the runs again, with higher fences, and finishes:
//
//   - Killed before the release: Start is called again, and is idempotent by the run's id.
//   - Killed after it: the run is in no queue that is leased.
//
// Start is not called for a run that has its engineRunRef.
//
// While a start takes long, its lease is renewed. Once the lease is lost, the context of the start
// ends, and the fence refuses what the start would still write.
//
// # Whole runs
//
// A Worker executes each run in its own process, from the lease to the end or to a pause. It is for
// programs that have no platform which keeps runs: the log does.
//
// # Signals
//
// Signals hands the signals of runs over to an adapter: those of a run in order, again until the
// adapter has taken them, and also those from before the process began. The log is its memory.
//
// # Ended runs
//
// Nothing is stored behind the end of a run. The end takes the run out of its queue, so that the
// release is refused, unless the engine has written RunStarted before. RunFailed is appended on the
// condition of the last runSeq that the reconciler knows. If another event came first, the
// reconciler renews its lease before it tries again, which a run that has ended refuses.
//
// An engine may write events of a run before Start returns. It then appends RunStarted itself, made
// by Started, before any other event. The one of the reconciler is a duplicate.
package engine
