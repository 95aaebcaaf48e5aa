package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/proto/contract"
)

// Explain returns the exit code and the one line that tell of an error.
func (s *Session) Explain(err error) (output.ExitCode, string) {
	code, text := s.explainCause(err)
	if hint := output.HintOf(err); hint != "" {
		text = strings.TrimSuffix(text, ".") + "; " + hint
	}
	return code, output.OneLine(text)
}

func (s *Session) explainCause(err error) (output.ExitCode, string) {
	if e, ok := errors.AsType[*output.Error](err); ok {
		// errors.Join puts each error on a line.
		return e.Code, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if errors.Is(err, context.Canceled) {
		return output.ExitInterrupted, "interrupted"
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		return exitCodeOf(e), s.explainCall(e)
	}
	return output.ExitFailed, err.Error()
}

func exitCodeOf(e *client.Error) output.ExitCode {
	switch e.Code {
	case codes.NotFound:
		return output.ExitNotFound
	case codes.InvalidArgument, codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted, codes.OutOfRange:
		return output.ExitRefused
	case codes.Unavailable, codes.ResourceExhausted:
		return output.ExitUnavailable
	case codes.DeadlineExceeded:
		return output.ExitTimeout
	case codes.Unauthenticated, codes.PermissionDenied:
		return output.ExitForbidden
	default:
		return output.ExitFailed
	}
}

// explainCall tells why a call failed. An error of the server says what to do; an error that gRPC
// made on this side does not.
func (s *Session) explainCall(e *client.Error) string {
	switch {
	case e.Reason == contract.ReasonUnauthenticated && s.unsent != "" && s.Token == "" && s.TokenFile == "" && s.Cert == "":
		return Refusal(e.Name(), e.Message, e.Violations) + fmt.Sprintf("; the token of the context was not sent: it is for %s, and the server is %s; leave out --server, or name the token", s.unsent, s.Server)
	case e.Reason == contract.ReasonUnauthenticated:
		return Refusal(e.Name(), e.Message, e.Violations) + "; name credentials with --token-file, RUNLOG_TOKEN or a context (runlog context add), or with --cert, of an authority that the node trusts"
	case e.Reason == contract.ReasonPermissionDenied:
		return Refusal(e.Name(), e.Message, e.Violations) + "; \"runlog whoami\" shows your roles and tenants"
	case e.Reason != "":
		return Refusal(e.Name(), e.Message, e.Violations)
	case e.Code == codes.Unavailable && strings.Contains(e.Message, "server preface") && silentText(e.Message):
		return fmt.Sprintf("server %s accepts connections but does not answer: a node that waits to form or join a cluster does this; GET /readyz on its HTTP or admin listener says what it waits for", s.address())
	case e.Code == codes.Unavailable && strings.Contains(e.Message, "authentication handshake failed"):
		return fmt.Sprintf("server %s and this command agree on no TLS connection (%s); %s", s.address(), Innermost(e.Message), handshakeHint(e.Message))
	case e.Code == codes.Unavailable && strings.Contains(e.Message, "server preface"):
		return fmt.Sprintf("server %s does not speak gRPC in plain text; if the node has --tls-cert, write https:// before the address or give --tls; --server takes the node's gRPC address (--grpc-listen, port 7410 by default)", s.address())
	case e.Code == codes.Unavailable:
		what := fmt.Sprintf("server %s cannot be reached (%s)", s.address(), Innermost(e.Message))
		if servers, _ := s.Servers(); len(servers) > 1 {
			what = fmt.Sprintf("none of %s can be reached (the last: %s)", strings.Join(servers, ", "), Innermost(e.Message))
		}
		return what + "; start a node with \"runlog serve\", or name another with --server or RUNLOG_SERVER"
	case e.Code == codes.DeadlineExceeded:
		return fmt.Sprintf("server %s did not answer within %v; try again, or wait longer with --timeout; GET /readyz on its HTTP or admin listener says what a node waits for", s.address(), s.Timeout)
	case e.Code == codes.Unimplemented:
		return fmt.Sprintf("server %s does not know this call: it is older than this command line (version %s), or this is not its gRPC address (--grpc-listen, port 7410 by default)", s.address(), s.Version)
	default:
		return e.Error()
	}
}

// handshakeHint tells what to do about a failed handshake. The message is gRPC's; the result only
// chooses the text that is shown.
func handshakeHint(message string) string {
	switch {
	case strings.Contains(message, "x509: certificate is valid for"), strings.Contains(message, "x509: cannot validate certificate"):
		return "name the server as its certificate does"
	case strings.Contains(message, "x509: certificate has expired"):
		return "replace the certificate of the node"
	case strings.Contains(message, "x509: "):
		return "name the certificate authority of the nodes with --cacert"
	case strings.Contains(message, "no application protocol"):
		return "--server takes the node's gRPC address (--grpc-listen, port 7410 by default)"
	case strings.Contains(message, "remote error: "):
		return "the node refuses the certificate of --cert, or wants one"
	default:
		return "a node without --tls-cert takes plain text: leave out --tls and https://"
	}
}

// address returns Server with its port, as it was dialled.
func (s *Session) address() string {
	servers, err := s.Servers()
	if err != nil {
		return s.Server
	}
	return strings.Join(servers, ",")
}

// silentText reports whether gRPC's message says that the server sent nothing before this side
// closed the connection. The result only chooses the text that is shown.
func silentText(message string) bool {
	return strings.Contains(message, "timeout") || strings.Contains(message, "use of closed network connection")
}

// Innermost returns the last cause in a message of gRPC, such as "connection refused". It is only
// shown.
func Innermost(message string) string {
	if i := strings.LastIndex(message, ": "); i >= 0 {
		message = message[i+2:]
	}
	if message = strings.Trim(message, `"`); message == "produced zero addresses" {
		return "no host of that name" // what gRPC's resolver makes of it
	}
	return message
}

// maxViolationsShown keeps the line of an error readable.
const maxViolationsShown = 5

// Refusal puts a refusal on one line. A violation says what is wrong with its field and what to do;
// the message tells only of the first.
func Refusal(reason, message string, violations []client.Violation) string {
	if len(violations) == 0 {
		return reason + ": " + message
	}
	var parts []string
	for _, v := range violations[:min(len(violations), maxViolationsShown)] {
		parts = append(parts, strings.TrimSpace(v.Field+" "+v.Description))
	}
	if more := len(violations) - len(parts); more > 0 {
		parts = append(parts, "and "+output.Number(more)+" more")
	}
	return reason + ": " + strings.Join(parts, "; ")
}

// HasReason reports whether an error is a refusal with this reason.
func HasReason(err error, reason client.Reason) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Reason == reason
}
