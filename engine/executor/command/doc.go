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
//	context ends ─► SIGTERM to all its processes ─► Grace ─► SIGKILL to them
//	exits        ─► pipes still open: SIGTERM, Grace ─► SIGKILL to all its processes
//	worker ends  ─► SIGKILL to all its processes
//
// On Linux, a guard is between the worker and the command: the same program again, which is the
// subreaper of what the command starts. So it finds each process, whatever session, group or
// environment that has, and it outlives a worker that is killed. This needs no cgroup: a worker
// makes one only with rights of its own, and another process has to kill it after the worker.
// If a command kills its guard, the kernel kills the command, and the worker kills what still has a
// variable of its environment. A process that has changed that stays.
//
//	worker ─ control ─► guard ─► command ─► …
//	       ◄─ status ──
//
// Elsewhere "all its processes" are those of its group, and a worker that is killed leaves them.
//
// On Linux a command gets no rights that its worker does not have (no_new_privs), and root's
// commands have no capabilities. After Conceal, the environment and the memory of the worker are
// closed to them. Its files are not, as far as its user may read them.
//
// Memory and disk are bounded: of each stream the head and the tail are kept, and stdout as a whole
// up to MaxJSON. Secrets are replaced before a stream is cut.
package command
