// Package executor executes the steps of plans in a worker (ENG-3). A Registry has executors by
// their names, and stands around each of them.
//
//	Task ─► Registry.Execute ─► limits, timeout, heartbeats ─► Executor.Execute
//	                                                                 │
//	Result, *Error ◄─ limits ◄─ redaction of output, logs, names, errors ◄─┘
//
// An executor gets secrets and must use them. What it returns passes the Redactor of the task's
// secrets in the Registry, so no executor can forget to (ENG-7).
//
// # Ends of a task
//
//	Result             the step has succeeded
//	*Error Permanent   trying again cannot help, such as after a policy violation
//	*Error Retryable   the platform or the plan may try again; RetryAfter is the least delay
//	*Error Cancelled   the caller's context has ended
//
// Code is stable for each cause, so that retry policies can match it. An error that an executor
// returns and that is no *Error is EXECUTOR_FAILED and retryable. A panic is EXECUTOR_PANICKED and
// permanent. The error of Execute wraps no other error: the text of such a one would not be
// redacted.
package executor
