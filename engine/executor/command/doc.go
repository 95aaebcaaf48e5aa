// Package command executes a step as a process of the worker's machine (ENG-3).
//
// The inputs of a step:
//
//	argv         the program and its arguments; with "shell" a script and its arguments
//	shell        true: /bin/sh -c
//	dir          a folder below Options.Dir; without it an empty folder, which is removed later
//	env          variables
//	secretEnv    variables and the references of their secrets
//	secretFiles  variables and the references of secrets; the process gets a file's name
//	input        any JSON, for stdin
//
// The process reads one JSON object from stdin: runId, stepId, logicalAttempt, engineAttempt,
// input, upstream and parameters. If its stdout is JSON, that is the output of the step. Otherwise
// the output has the text, the count of bytes, and whether the text is truncated. Its stderr is the
// step's log.
//
// # The end of a process
//
//	context ends ─► SIGTERM to the process group ─► Grace ─► SIGKILL to the group
//	exits        ─► pipes still open: SIGTERM, Grace ─► SIGKILL to the group
//	             ─► Linux: SIGKILL to what has left the group, by a variable of its environment
//
// So nothing that a command has started outlives it, except a process that has left the group and
// has changed its environment. On Linux the process also ends when the worker is killed. Linux does
// not reap the process before its group is killed, so the group's number cannot be another one's.
//
// Memory and disk are bounded: of each stream the head and the tail are kept, and stdout as a whole
// up to MaxJSON. Secrets are replaced before a stream is cut.
package command
