// Package runner is the reference engine: it executes runs by the log alone, and waits for
// operators' attestations of compute steps (ATT-1 to ATT-7).
//
//	POST /api/runs ──► RequestRun ──► the queue ──► LeaseRuns ──► Execute ──► the log
//	                                      ▲                          │
//	POST …/resume ───► RESUME, RequeueRun ┘        waits, or ends ◄──┘
//
// A Runner keeps nothing of a run. Execute reads the run's events, rebuilds the walk of its plan,
// and goes on where the log ends. Each of its appends has the fence of its lease and names the
// event that it expects to be the last: another worker's write, and another event, are seen before
// anything is stored. So a kill between any two steps costs nothing but the step that was under
// way, which is executed again as the same step run.
//
// A step is one StepStarted and one StepCompleted or StepFailed, whatever number of attempts it
// takes. A compute step is one StepWaitingForAttestation and one StepAttested: the key of the event
// is the one of the log, so of two attestations one is stored (IDM-1).
//
// The API acts with the credentials of its caller, so that the log decides what each caller may do.
// Execution uses those of the Runner.
package runner
