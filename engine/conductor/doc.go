// Package conductor is the adapter of Conductor, and the worker of its tasks (ENG-1, ENG-5).
//
//	e, err := conductor.New(conductor.Options{API: c, Log: client, Plans: fetcher, ...})
//	r, err := engine.New(engine.Options{Starter: engine.Starts(e), ...}) // starts workflows
//	e.Run(ctx)                                                 // works on their tasks
//	(&engine.Signals{Log: client, Deliver: e.Signal, ...}).Run(ctx)   // answers signals at once
//	(&conductor.Sweeper{Engine: e, ...}).Run(ctx, time.Minute) // ends runs without tasks
//
// # Conductor schedules, the walk decides
//
// A run is one workflow: a FORK_JOIN with one branch for each step, and one task in it.
//
//	FORK ─┬─ step:extract ─┬─ JOIN        poll ─► read the run's log ─► plan.Walk
//	      ├─ step:clean ───┤                        │ wait, paused   ─► back into the queue
//	      └─ step:load ────┘                        │ run            ─► StepStarted, execute
//	                                                └ ended          ─► COMPLETED
//
// All tasks can be polled from the start. The worker that gets one reads the log of the run, and
// package plan decides whether the step runs, waits or is skipped. So conditions, skipped steps,
// retries of operators and pauses give the same result as with any other engine. A graph of JOINs
// on other branches was the alternative. But a failed task ends its workflow or counts as done
// there, RETRY_STEP would have to wait for the end of the workflow, and by its source a real JOIN
// may see a failed task before the retry of it. What Conductor gives is queues, response timeouts,
// retries, and its user interface.
//
// A task that waits costs a poll and an update for each Wait. The worker that ends a step puts the
// tasks of the steps that can run next back into their queues without a delay.
//
// # Starting once
//
// Conductor makes a workflow for each start, whatever the correlation id. So the log decides: the
// first workflow whose reference is stored with SetEngineRunRef has the run, and all others are
// terminated, by the start that made them or by the worker that polls their first task.
//
// # Attempts
//
// retryCount of a task grows with each retry of the platform. StepStarted of a logical attempt
// stores the retryCount that the attempt began with, so engineAttemptId = retryCount − that + 1. A
// RETRY_STEP executes the same task again, with the next logicalAttemptId. So the task of a step
// that has failed, or that was skipped because of it, stays in its queue until the run ends. The
// platform retries errors that are retryable, and workers that are silent. The worker counts, and
// appends StepFailed after the last one. Before, each failure is a StepRetrying with the time of
// the next try (IDM-11): Conductor's own delay is fixed when the workflow starts. A worker that
// gets the next task before that time puts it back with callbackAfterSeconds.
//
// # What a worker reads
//
// Package replay folds the log. A worker keeps the states of runs, and plans by their references,
// up to a number of bytes, and reads what has come since for each task.
//
// # Signals
//
// Settling a run appends the effect of each signal that the log has accepted, and lets the workflow
// follow. Signal does it for engine.Signals, and each worker with each task. A pause drains
// (ENG-5): RunPaused is appended at once, no step starts, nothing is cancelled, and the workflow is
// paused in Conductor.
//
// # Invariants
//
//   - Each decision is a function of the log and the plan. StepStarted, StepSkipped and the events
//     of the run are appended on the condition of the runSeq that they were decided at.
//   - A task is updated after its events are stored. A worker that is killed leaves a task that
//     times out, and its retry finds in the log what is done.
//   - A step may be executed more than once: after a kill, and if Conductor delivers a retry twice.
//     It has one StepCompleted.
package conductor
