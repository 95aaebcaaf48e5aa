// Package queue is the machine of run requests, queues, leases and running slots (QUE-1 to QUE-10).
//
//	E due:8 order:8                  timer of a run                 runId
//	F tenantId                       queues of a tenant             queues:8
//	G name                           a queue that has a run to      queue:8
//	                                 lease, and a slot for it
//	H order:8                        a run in EXHAUSTED             runId
//	I                                what the machine counts        record.v1.QueueNumbers
//	N name                           the number of a queue          queue:8
//	O queue:8 state:1 rank:1 order:8  a run of a queue               enqueuedAt:8 runId
//	P requestKey:32                  a request, forever             record.v1.RunRequest
//	Q queue:8                        a queue                        record.v1.Queue
//	R runId                          a run from its request to its  record.v1.QueuedRun
//	                                 end
//	Yd queue:8 pausedAt:8 runId      a pause that drains            1
//	Yu runId                         a run that may have ended      1
//
// A name is tenantId, projectId, environmentId and queue, each with a zero byte behind it, so that
// the begin of a name is a filter. rank is 9 - priority for a ready run, and 0 for another.
//
//	            notBefore                    lease              STARTED
//	Request ──► DELAYED ──► READY ─────────────────► LEASED ────────────► RUNNING
//	    │          ▲          ▲                       │  │ │                 │
//	    └──────────│──────────┤ expired, and attempts │  │ │ expired, none   │ terminal
//	               │          └───────────────────────┘  │ ▼                 ▼ event
//	               └─────────────────────────────────────┘ EXHAUSTED ─────► gone
//	                 FAILED, and attempts are left              Expire
//
// Retry takes an EXHAUSTED run back to READY. A RunStarted takes a LEASED run to RUNNING, with its
// lease: the worker executes the run under it (QUE-12). A run with a RunStarted is RUNNING from its
// next lease on.
//
// A run is leased if it is READY, and becomes READY only in work.wait: with its request, at its
// notBefore, with Release (FAILED), Retry and Requeue, and when a lease has expired. A run that has
// accepted a CANCEL is EXHAUSTED instead, also if it was READY, DELAYED or LEASED, until Cancel
// ends it (QUE-10).
//
// When a run ends, in any state, all its rows but P are deleted (PRJ-17). If the types of the
// events do not tell whether a run has ended, it is in Yu, until a Settle says by the snapshot
// which status it has. It keeps its place, but where it would be READY, it is EXHAUSTED. A Settle
// that says that it has not ended makes it READY. Release (FAILED with no attempt left, SKIPPED),
// Cancel and Expire end it before their command appends the event.
//
// Order (QUE-5). At a time t the effective priority of a run is
//
//	priority + floor((t - enqueuedAt) / agingPeriod)
//
// which may exceed 9. The highest comes first, and of those the lowest order: the number of the
// request among all requests, and so the commit order. A run keeps enqueuedAt and order when it
// comes back. Among the runs of one priority enqueuedAt rises with order. So their first is also
// the one with the highest effective priority, and the next run of the queue is the best of at most
// 10 firsts, which are in the row of the queue.
//
// Costs. No operation reads more rows than it changes, but for a constant. A queue that is empty,
// full or paused is not in G. Where rows come and go at one end of a table (E, O), scans begin
// behind those that went: Pebble would step over each of them.
//
// Pauses (PRJ-9). A RunPaused with draining writes a row in Yd, with queue 0 if the run is in none.
// The leader reads the rows that are due, and looks whether the run still drains. EndDrains deletes
// them, and counts those for which the alert is raised: a row goes once.
//
// Time is the stamp of the proposal (QUE-9). A lease has expired from its expiresAt on, also while
// it waits for its timer: Renew and Release are refused. Until the timer is handled, the run holds
// its slot and is not leased again, and appends with its fence are stored. Tick handles timers, and
// Lease some of them before it looks.
//
// Fences (fence.go). Request sets fence 1, so that the core tells this machine of the end of the
// run (storage.Ender). Each lease sets the next even one. A release other than STARTED, or its
// timer, sets the next odd one. Cancel, Expire and Requeue set an even one that no worker has, so
// that the last worker neither writes nor releases. The row of a run has the fence of its last
// lease.
//
// Invariants: a run has one row in O, and one in E if it is DELAYED or has a lease. The sum of
// running and leased of a queue rises only while it is below maxRunning. The counts of a queue are
// those of its rows. No stamp in E is before QueueNumbers.timers_from.
package queue
