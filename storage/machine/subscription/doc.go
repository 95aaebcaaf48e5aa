// Package subscription is the machine of subscriptions: their settings, cursors and dead letters
// (BUS-2, BUS-4 to BUS-6). A dispatcher on the leader reads the log and delivers; this package
// keeps what it has achieved.
//
//	S number:8                      a subscription                  record.v1.Subscription
//	U tenantId 0 subscriptionId 0   the number of a subscription    number:8
//	V number:8 runId                a run that owes events          record.v1.Owed
//	W number:8 0 runId 0 runSeq:8   a dead letter                   record.v1.ParkedLetter
//	W number:8 1 runId 0 runSeq:8   a dead letter is redriven       empty
//	X                               the last number                 record.v1.SubscriptionNumbers
//	X tenantId 0                    subscriptions of a tenant       count:8
//
// A subscription to all tenants has no tenantId, and counts as one of a tenant without a name.
// Numbers rise from 1 and are never used again: a subscription that is deleted and made again has
// another one, so that nothing proposed for the first has an effect on the second.
//
// Cursor. position and began are positions of log entries. Which events are due follows from the
// rows alone:
//
//	            began                      position            end of the log
//	──────────────┼──────────────────────────┼───────────────────────┼──► log entries
//	 none is due  │ settled, so none is due, │ every event that      │
//	              │ but those of runs in V   │ matches is due        │
//	              │ from next_seq on         │                       │
//	──────────────┴──────────────────────────┴───────────────────────┘
//	 dead letters (W), wherever they lie: due only while they are redriven
//
// An event is settled when it is acknowledged or parked. Whether one matches is not known here. An
// event that does not match counts as settled. An entry has its events on one side of the cursor.
//
// Owed. The cursor can pass events that are not settled: those of a run that waits for another
// attempt, or for its dead letters (HOLD_RUN). Such a run has a row in V. Its events up to the
// cursor with a runSeq of next_seq or more are due; those before next_seq are settled. The events
// of the run behind the cursor are due in any case, so that a row whose last event was settled is
// deleted, not moved on. attempts are the failed ones of the event next_seq.
//
//	                 parked              Redrive
//	due event ──────────────► parked ────────────► redriving ──► gone
//	                            ▲ │       parked      │ │ delivered
//	                            │ └─► gone            │ └─► gone
//	                            │     Discard         │     Discard
//	                            └─────────────────────┘
//
// Settle is how the dispatcher changes these rows. An item has effect as a whole or not at all. It
// has none, and its reply is false, unless
//   - it names the number and the version of the row,
//   - its position is the row's, or above it and below that of the command: the cursor never falls
//     by a Settle, and never passes entries that the dispatcher cannot have read,
//   - at most MaxOwed runs owe and at most MaxDeadLetters are kept after it.
//
// The dispatcher then reads the subscription again (Load), and decides again. If the version is the
// one that it named, the row is at a limit: it keeps the cursor where it is, or does not park.
//
// Every change raises the version by 1, so that a change of the settings and Seek refuse what was
// decided before them. An operation that changes nothing raises none: a pause of a paused
// subscription, equal settings, Redrive and Discard of no dead letter.
//
// cursor_version rises with Settle and Seek alone. A dispatcher that finds another one than it
// expects begins again with the rows: a Settle of its own that it believed lost had effect, or one
// of a leadership before.
//
// Seek moves the cursor anywhere up to the position of its command, and clears V. Dead letters stay
// as they are. After a seek to an earlier position, an event may be due by the cursor and be a dead
// letter too; if it is parked again, the letter has the new attempts and error.
//
// Costs. An operation on one subscription reads and writes its row, and what it names. Delete and
// Seek, and Redrive and Discard of all, go through rows of the subscription: at most MaxOwed and
// MaxDeadLetters. Redrive does not write dead letters again, which have long texts.
//
// Invariants: owed_runs and dead_letters of a subscription are the counts of its rows. For each row
// of W with 1 there is one with 0. began ≤ position. X has the counts of U.
package subscription
