// Package run folds the records of a run into its snapshot (docs/contract.md, Projections).
//
//	records in runSeq order ──▶ Reduce ──▶ Snapshot ──▶ MarshalStored ──▶ projection database
//	                              ▲            │
//	                              └────────────┘ the next record
//
// # The reducer
//
// [Reduce] is a pure function of a snapshot and a record. It reads no clock, no configuration and
// no state of the node. So every node and every rebuild computes the same snapshots and the same
// [Snapshot.Digest] (PRJ-1). Reduce is total: an event that the run's state does not allow is noted
// in the snapshot and raises an alert. It never stops the projection of the run (PRJ-8).
//
// A published snapshot is immutable and shares unchanged parts with its predecessors. [ReduceAll]
// folds a batch in linear time: until it returns, it changes the parts that it has copied in place.
//
// Values that depend on the time of the request are computed when a snapshot is served
// ([Drain.Substatus], PRJ-9). They are not part of the digest.
//
// # Runs
//
// PRJ-4 defines which run event is legal in which status. contract.RunStatus.After is that table,
// for the log too (PRJ-17).
//
// # Steps
//
// The contract defines the effect of step events (PRJ-5 to PRJ-7), but not in which status of a
// logical attempt each is legal. This package decides it. StepAttempt.advance is this table:
//
//	event                      PENDING    RUNNING    WAITING    SUCCESS    FAILED     SKIPPED
//	StepStarted                RUNNING    repeat     late       late       retry      late
//	StepDelayed                stays      invalid    invalid    invalid    invalid    invalid
//	StepWaitingForAttestation  WAITING    WAITING    repeat     invalid    invalid    invalid
//	StepCompleted              SUCCESS    SUCCESS    invalid    repeat     retry      invalid
//	StepFailed                 FAILED     FAILED     FAILED     invalid    retry      invalid
//	StepSkipped                SKIPPED    invalid    invalid    invalid    invalid    repeat
//	StepAttested               invalid    invalid    by outcome invalid    invalid    invalid
//	StepRetrying               retry next retry next late       late       late       late
//
// In words:
//
//   - repeat: the event repeats the current state; the first write wins. A producer with keys of
//     its own can send a repeat (IDM-5). A repeat changes engineAttemptId only. It does not count
//     in failedSteps. A repeated StepWaitingForAttestation puts a RUNNING run to WAITING like the
//     first one: the run may have been resumed in between, and waits again.
//   - retry: an event with a higher engineAttemptId than that of the failure shows that the
//     platform has retried. The failure goes to attempts[], and the event applies as to a PENDING
//     attempt (PRJ-15). With the same or a lower one, a StepStarted is late, a StepFailed a repeat,
//     and a StepCompleted invalid.
//   - retry next: the status stays. The event sets what the snapshot says of the next retry, and
//     the next event of the attempt clears it (PRJ-18). If the attempt has an event with a higher
//     engineAttemptId, the StepRetrying is late.
//   - late: the event was delayed in the producer's outbox. A StepStarted sets startedAt if that is
//     absent. Both set engineAttemptId, like every event of the attempt (PRJ-6, PRJ-7).
//   - WAITING ends by an attestation or a failure (a timeout, for example). A StepCompleted there
//     would bypass the operator, so it is invalid. A StepAttested is invalid if the step is not
//     WAITING, or if its outcome is not SUCCESS, FAIL or FAILED.
//   - A StepAttestationApproved adds an approver to a step that is WAITING. It changes no status,
//     and is never invalid (SEC-10).
//   - A skipped step never ran: StepSkipped is valid in PENDING only and sets no completedAt.
//   - StepDelayed sets the reason until the attempt starts.
//
// The event of a higher attempt applies to the PENDING attempt that it opens. The first event of a
// step applies to the PENDING step that it creates. If the event is invalid, the attempt or step is
// not created and the state does not change (PRJ-8). An event of a lower attempt follows the same
// table on the entry of that attempt; an invalid one is ignored (PRJ-7).
package run
