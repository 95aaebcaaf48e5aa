// Package projector turns the records of a run into its snapshot (contract, section 6).
//
//	storage ── records in runSeq order ──▶ Reduce ──▶ Snapshot ──▶ MarshalStored ──▶ projection database
//	                                         ▲           │
//	                                         └───────────┘ the next record
//
// # The reducer
//
// [Reduce] is a pure function of a snapshot and a record. It knows no clock, no configuration and
// no node, so that every node, and every rebuild, comes to the same snapshots and the same
// [Snapshot.Digest] (PRJ-1). It is total: what a state does not allow is remembered in the snapshot
// and alerted on, and never stops a run's projection (PRJ-8).
//
// Snapshots are immutable once published and share what did not change with their predecessors.
// [ReduceAll] folds a batch in linear time by changing, until it returns, what it has copied
// itself.
//
// What depends on the moment of the question is worked out when a snapshot is served
// ([Snapshot.Substatus], PRJ-9) and is not part of the digest.
//
// # Runs
//
// PRJ-4 says which run event is legal in which status; runAllows is that table.
//
// # Steps
//
// The contract says what step events do (PRJ-5 to PRJ-7) and leaves open where they are legal
// within one logical attempt. That is decided here, and StepAttempt.advance is this table:
//
//	event                      PENDING    RUNNING    WAITING    SUCCESS    FAILED     SKIPPED
//	StepStarted                RUNNING    repeat     late       late       late       late
//	StepDelayed                stays      invalid    invalid    invalid    invalid    invalid
//	StepWaitingForAttestation  WAITING    WAITING    repeat     invalid    invalid    invalid
//	StepCompleted              SUCCESS    SUCCESS    invalid    repeat     invalid    invalid
//	StepFailed                 FAILED     FAILED     FAILED     invalid    repeat     invalid
//	StepSkipped                SKIPPED    invalid    invalid    invalid    invalid    repeat
//	StepAttested               invalid    invalid    by outcome invalid    invalid    invalid
//
// In words:
//
//   - repeat: says again what holds; first write wins. Producers with keys of their own can send
//     such (IDM-5). It changes nothing but engineAttemptId, and is not counted in failedSteps. A
//     repeated StepWaitingForAttestation puts a RUNNING run to WAITING like the first: the run may
//     have been resumed in between, and waits again.
//   - late: the event was parked in an outbox. It fills startedAt when that is absent, and
//     engineAttemptId like every event of the attempt (PRJ-6, PRJ-7).
//   - WAITING ends by an attestation or a failure (a timeout, say). A StepCompleted there would get
//     round the operator, so it is invalid, and so is a StepAttested that nobody waits for, or
//     whose outcome is not SUCCESS, FAIL or FAILED.
//   - A skipped step never ran: StepSkipped is for PENDING only and sets no completedAt.
//   - StepDelayed keeps its reason until the attempt starts.
//
// The event of a higher attempt is judged by the PENDING attempt that it opens, and the first event
// of a step by the PENDING step that it makes. Where it is invalid, nothing is opened or made:
// state unchanged (PRJ-8). An event of a lower attempt goes by the same table, on that attempt's
// entry; what is invalid there is passed over in silence (PRJ-7).
package projector
