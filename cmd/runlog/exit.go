package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"runlog/client"
)

// exitCode is what a script sees.
type exitCode int

const (
	exitOK          exitCode = 0
	exitRefused     exitCode = 1
	exitUsage       exitCode = 2
	exitNotFound    exitCode = 3
	exitRunNotOK    exitCode = 4
	exitUnavailable exitCode = 5
	exitTimeout     exitCode = 6
	exitForbidden   exitCode = 7
	exitFailed      exitCode = 8
	exitInterrupted exitCode = 130
)

// exitMeanings is the documentation of the codes.
var exitMeanings = []struct {
	code    exitCode
	meaning string
}{
	{exitOK, "done"},
	{exitRefused, "some input was refused: a bad line, a field, a conflict; the rest was stored. Or what was verified is not what it must be"},
	{exitUsage, "the command line is wrong, or names a file that does not exist"},
	{exitNotFound, "no such run, or no such member of the cluster"},
	{exitRunNotOK, "watch --until-done: the run ended FAILED or CANCELLED"},
	{exitUnavailable, "no server, no leader, or overloaded; trying again later may help"},
	{exitTimeout, "no answer within --timeout, or watch --until-done --for ran out"},
	{exitForbidden, "not signed in, or not allowed"},
	{exitFailed, "anything else: a failure inside the server, a file that cannot be read"},
	{exitInterrupted, "ended by Ctrl-C or SIGTERM (a watch without --until-done: 0)"},
}

func exitCodeHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range exitMeanings {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// exitCodesTopic is "runlog help exit-codes".
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes tell a script",
		Long: exitCodeHelp() + `

Every error is one line on stderr: the reason, what happened, what to do. An append that ended
with 5, 6 or 130 may be run again as it is: events that were stored are recognised by their key.`,
	}
}

// exitError is an error that knows its exit code.
type exitError struct {
	code exitCode
	text string
}

func (e *exitError) Error() string { return e.text }

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Sprintf(format, args...)}
}

// hinted adds to an error what the user can do, which the error alone cannot know.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// explain returns the exit code and the one line for an error.
func (a *app) explain(err error) (exitCode, string) {
	code, text := a.explainCause(err)
	if h, ok := errors.AsType[hinted](err); ok {
		text += "; " + h.hint
	}
	return code, oneLine(text)
}

func (a *app) explainCause(err error) (exitCode, string) {
	if e, ok := errors.AsType[*exitError](err); ok {
		// errors.Join has a line for each
		return e.code, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted, "interrupted"
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		return exitCodeOf(e), a.explainRefusal(e)
	}
	return exitFailed, err.Error()
}

func exitCodeOf(e *client.Error) exitCode {
	switch e.Code {
	case codes.NotFound:
		return exitNotFound
	case codes.InvalidArgument, codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted, codes.OutOfRange:
		return exitRefused
	case codes.Unavailable, codes.ResourceExhausted:
		return exitUnavailable
	case codes.DeadlineExceeded:
		return exitTimeout
	case codes.Unauthenticated, codes.PermissionDenied:
		return exitForbidden
	default:
		return exitFailed
	}
}

// explainRefusal puts a failed call into words. The server's own errors say what to do; those that
// gRPC made on this side do not.
func (a *app) explainRefusal(e *client.Error) string {
	switch {
	case e.Reason != "":
		return explainReason(e.Reason, e.Message, e.Violations)
	case e.Code == codes.Unavailable && strings.Contains(e.Message, "server preface") && silentText(e.Message):
		return fmt.Sprintf("server %s takes connections and does not answer: a node that waits for others to make or join a cluster does so, and its log tells for whom", a.server)
	case e.Code == codes.Unavailable && strings.Contains(e.Message, "server preface"):
		return fmt.Sprintf("server %s does not speak gRPC; --server wants the address that the node calls grpc (--grpc-listen, port 7410 by default)", a.server)
	case e.Code == codes.Unavailable:
		what := fmt.Sprintf("server %s cannot be reached (%s)", a.server, innermost(e.Message))
		if servers := a.servers(); len(servers) > 1 {
			what = fmt.Sprintf("none of %s can be reached (the last: %s)", strings.Join(servers, ", "), innermost(e.Message))
		}
		return what + "; start a node with \"runlog serve\", or name another with --server or RUNLOG_SERVER"
	case e.Code == codes.DeadlineExceeded:
		return fmt.Sprintf("server %s did not answer within %v; try again, or wait longer with --timeout", a.server, a.timeout)
	case e.Code == codes.Unimplemented:
		return fmt.Sprintf("server %s does not know this call; it is older than this command line (version %s), or no runlog server", a.server, version)
	default:
		return e.Error()
	}
}

// silentText tells, of gRPC's words for a connection that failed, whether the other end said
// nothing until this side closed it. It only chooses what is shown.
func silentText(message string) bool {
	return strings.Contains(message, "timeout") || strings.Contains(message, "use of closed network connection")
}

// innermost returns the last link of a chain of gRPC's causes: "connection refused". It is only
// shown.
func innermost(message string) string {
	if i := strings.LastIndex(message, ": "); i >= 0 {
		message = message[i+2:]
	}
	return strings.Trim(message, `"`)
}
