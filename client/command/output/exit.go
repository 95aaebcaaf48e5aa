package output

import (
	"errors"
	"fmt"
	"strings"
)

// ExitCode is the exit code of the process, which scripts read.
type ExitCode int

// Exit codes. ExitCodeHelp documents them.
const (
	ExitOK          ExitCode = 0
	ExitRefused     ExitCode = 1
	ExitUsage       ExitCode = 2
	ExitNotFound    ExitCode = 3
	ExitRunNotOK    ExitCode = 4
	ExitUnavailable ExitCode = 5
	ExitTimeout     ExitCode = 6
	ExitForbidden   ExitCode = 7
	ExitFailed      ExitCode = 8
	ExitUnverified  ExitCode = 9
	ExitRejected    ExitCode = 10
	ExitInterrupted ExitCode = 130
)

// ExitMeaning is what an exit code of a program says.
type ExitMeaning struct {
	Code    ExitCode
	Meaning string
}

// exitMeanings are those of the program runlog.
var exitMeanings = []ExitMeaning{
	{ExitOK, "done"},
	{ExitRefused, "the server refused some input (a bad line, a field, a conflict) and stored the rest; or a verification failed"},
	{ExitUsage, "the command line is wrong, or names a file that does not exist"},
	{ExitNotFound, "no such run, or no such member of the cluster; with --strict, no event of such a type or tenant"},
	{ExitRunNotOK, "watch --until-done: the run ended FAILED or CANCELLED"},
	{ExitUnavailable, "no server, no leader, or overloaded; a retry may help"},
	{ExitTimeout, "no answer within --timeout, or watch --until-done --for ran out"},
	{ExitForbidden, "not signed in, or not allowed"},
	{ExitFailed, "any other failure: inside the server, or a file that cannot be read"},
	{ExitUnverified, "audit verify: no --key was given, so that no signature was verified; no other fault was found"},
	{ExitRejected, "signal: the signal was rejected; the decision is stored"},
	{ExitInterrupted, "ended by Ctrl-C or SIGTERM (a watch without --until-done: 0)"},
}

// ExitCodeHelp returns the documentation of the exit codes of the program runlog, a line each.
func ExitCodeHelp() string { return ExitCodeHelpOf(exitMeanings) }

// ExitCodeHelpOf returns the documentation of the exit codes of a program, a line each.
func ExitCodeHelpOf(meanings []ExitMeaning) string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range meanings {
		fmt.Fprintf(&b, "  %3d  %s\n", e.Code, e.Meaning)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Error is an error with an exit code of its own.
type Error struct {
	Code ExitCode
	text string
}

func (e *Error) Error() string { return e.text }

// Errorf returns an Error.
func Errorf(code ExitCode, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// UsageError returns the Error of a wrong command line.
func UsageError(format string, args ...any) error { return Errorf(ExitUsage, format, args...) }

// hinted adds to an error what the user can do about it, where the error cannot know.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// WithHint adds to an error what the user can do about it.
func WithHint(err error, hint string) error { return hinted{err, hint} }

// HintOf returns the hint of an error; empty if it has none.
func HintOf(err error) string {
	if h, ok := errors.AsType[hinted](err); ok {
		return h.hint
	}
	return ""
}
