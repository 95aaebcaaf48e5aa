// Package conductortest is a Conductor inside a test, for tests of engines and adapters. It serves
// the HTTP API on loopback, and keeps its state in memory.
//
//	c := conductortest.Start(t)
//	c.LoseAnswers(1, conductortest.OpUpdate) // the next update takes effect, its answer is lost
//	// ... an adapter with c.URL()
//	c.Advance(time.Minute) // tasks whose workers are silent time out
//
// # What it is faithful to
//
// No real Conductor runs in these tests. The semantics are those of the source of conductor-oss, as
// of commit b54f0d4ee546 of 2026-08-21. The published Go SDK drives the fake in the module sdkcheck
// beside this package.
//
//   - A start never looks at the correlation id: two starts with the same one make two workflows.
//   - A search by correlation id finds RUNNING workflows only, unless includeClosed is set: a
//     PAUSED one counts as closed.
//   - A pause stops the decider, and nothing else. Tasks that are scheduled can still be polled. A
//     task in progress goes on, and its update is taken. No timeout is noticed.
//   - A failed task is retried as a new task, with another taskId, the same reference name, and
//     retryCount + 1. Retries of the platform and of an operator count alike.
//   - A task that was polled times out if its worker is silent for responseTimeoutSeconds. The
//     worker prevents it by an update with extendLease.
//   - A retry is due after the delay of its definition, whatever callbackAfterSeconds the update to
//     FAILED had.
//   - An update to IN_PROGRESS puts the task back into its queue, for callbackAfterSeconds.
//   - An update of a task, or in a workflow, that has ended is answered 200 and ignored.
//   - A resume or a skip in the wrong state is 500. A pause in the wrong state is 409.
//   - A termination of a terminated workflow is 200, and of a completed one 409.
//
// # What it leaves out
//
// Task kinds are SIMPLE, FORK_JOIN and JOIN. There are no domains, sub-workflows, events, rate
// limits, expressions in inputs, payload storage or archives. Orkes' tokens and permissions are
// left out; a fixed value of the header X-Authorization can be required. The decider runs after
// each request and each Advance, and evaluates a JOIN at once. A real one needs up to 30 s for a
// timeout, and evaluates a JOIN that has waited for long at growing intervals. By its source, a
// real JOIN may also see a task that has failed before the retry of that task is there, and fail
// then.
//
// # Time
//
// The clock of the fake goes with that of the machine, and Advance sets it forward. Long polls last
// by the machine's clock.
package conductortest
