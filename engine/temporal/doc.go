// Package temporal is the adapter of Temporal, and the worker of its workflows (ENG-1, ENG-3).
//
//	e, err := temporal.New(temporal.Options{Temporal: c, Log: client, Plans: fetcher, ...})
//	r, err := engine.New(engine.Options{Starter: engine.Starts(e), ...}) // starts workflows
//	err = e.Run(ctx)                                                      // works on them
//
// # The interpreter
//
// A run is one workflow with the run's id, of one type for all plans. Temporal decides when its
// code runs; package plan decides which step is next; the log has what has happened.
//
//	beginRun, with the plan ─► the walk ─┬─► executeStep, in parallel
//	   ▲                                 ├─► tellRun: pauses, skips, the end
//	   │                                 └─► concludeStep: what no worker told
//	   └── a continuation, with the Cursor, after 50 steps or 1 MiB of history:
//	       it reads the plan by fetchPlan and validatePlan
//
// The workflow has no state that the log does not have. A workflow that starts for a run which is
// under way reads the log and goes on: Temporal may lose its history, or reset it.
//
// # Attempts
//
// Temporal counts the attempts of an activity: that is the engineAttemptId. The interpreter counts
// logical attempts: one more for each RETRY_STEP, as the log says (SIG-7). Temporal's attempts have
// no limit, because workers that are killed use them up too. The activity counts the failures of
// the step by itself, in its heartbeat details, and appends StepFailed after the last one.
//
// # Signals
//
// The log decides about signals. A signal in Temporal is a bell: the workflow then reads the
// signals that the log has accepted, in their order, from the last one that it knows. So a bell may
// come twice, late or out of order. The event that ends a run is appended on the condition that no
// signal came before it.
//
// # The fence
//
// Events carry the fence of the lease that started the run. A reconciler that was killed leaves a
// workflow with an older fence. Such a workflow asks the log for the reference of the run: if it is
// its own, the workflow goes on with the current fence. If another engine has the run, it ends, and
// writes nothing.
//
// # Invariants
//
//   - What the log says holds. A step that Temporal takes for lost is concluded by its events.
//   - Every event of the run, and every skipped step, is appended on the condition of the runSeq
//     that it was decided at.
//   - A step may be executed more than once. It has one terminal event in a logical attempt.
//   - The workflow's code depends on its input, its history and workflow time alone.
package temporal
