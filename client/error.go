package client

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// apiVersion is the package of the services.
const apiVersion = "runlog.v1"

// errorDomain marks an ErrorInfo as runlog's own.
const errorDomain = "runlog"

// Error is a failed call (docs/errors.md).
type Error struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason names the failure, such as ReasonRunNotFound. Empty if it did not come from a runlog
	// server and nothing can be stored: the connection failed, or the context ended.
	Reason Reason
	// Message has the cause for people. If the server sent it, it has the remedy too.
	Message string
	// Violations are the refused fields of the request, all of them.
	Violations []Violation
	// Metadata holds details, such as "index" (of the first refused event) or "expected".
	Metadata map[string]string
	// RetryAfter is the delay requested by the server; 0 without one.
	RetryAfter time.Duration

	causes []error
}

// Violation is one refused field.
type Violation struct {
	// Field is a path into the request, such as "events[3].stepId".
	Field string
	// Reason may be empty.
	Reason      Reason
	Description string
}

// Error returns the reason (or the code) and the message on one line.
func (e *Error) Error() string {
	return e.Name() + ": " + e.Message
}

// Name returns the reason, or else the code: a name that failures can be counted by.
func (e *Error) Name() string {
	if e.Reason != "" {
		return string(e.Reason)
	}
	return e.Code.String()
}

// Unwrap returns the gRPC error and, when the caller's context ended the call, the context's.
func (e *Error) Unwrap() []error { return e.causes }

// Retryable reports whether the same call may succeed later without a change.
func (e *Error) Retryable() bool {
	switch e.Code {
	case codes.Unavailable:
		return true
	case codes.ResourceExhausted:
		// Messages over gRPC's size limit stay too large, and a quota without a delay stays full.
		return e.Reason != "" && e.Reason != ReasonQuotaExceeded || e.RetryAfter > 0
	case codes.Aborted:
		return e.Reason == ReasonSlowConsumer // the stream resumes with its token
	default:
		return e.Reason == ReasonOutcomeUnknown
	}
}

// Final reports whether the server would refuse the same call at any time. Credentials can be
// corrected, and a cluster can be upgraded or released; a failure without a reason may be that of a
// proxy.
func (e *Error) Final() bool {
	switch e.Code {
	case codes.InvalidArgument, codes.AlreadyExists, codes.OutOfRange, codes.NotFound, codes.Aborted, codes.FailedPrecondition:
		return e.Reason != "" && e.Reason != ReasonUpgradeIncomplete && e.Reason != ReasonClusterHeld
	case codes.ResourceExhausted:
		return e.Reason == "" && e.RetryAfter == 0 // gRPC: the message is too large
	default:
		return false
	}
}

// Unknown reports whether the call may have taken effect despite its failure. An append with an
// unknown outcome can always be sent again as it is (APP-10).
func (e *Error) Unknown() bool {
	return e.Reason == ReasonOutcomeUnknown || e.Reason == ReasonStorageFailed
}

// unknown reports whether a try that reached a server may have taken effect. gRPC and proxies use
// the other codes for calls that they do not pass on, and later versions for refusals.
func (e *Error) unknown() bool {
	if e.listed() {
		return e.Unknown()
	}
	switch e.Code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.Unknown, codes.DataLoss:
		return true
	default:
		return false
	}
}

// listed reports whether this version knows the reason.
func (e *Error) listed() bool { return e.Reason.Info().Code != codes.Internal }

// decides reports whether the failure of a repeated write also tells of the tries before it: the
// server has looked for duplicates, and would refuse at any time. The rules behind INVALID_ARGUMENT
// come first, and are those of one node. A lost right or an overload tells nothing of the tries,
// and a run that exists may have been made by one of them.
func (e *Error) decides() bool {
	switch e.Reason {
	case ReasonUpgradeIncomplete, ReasonRunNotFound, ReasonRunAlreadyExists, ReasonStepNotFound, ReasonStepNotWaiting, ReasonRunNotWaiting:
		return false
	case ReasonSequenceConflict: // a run that is too short may grow, and an earlier try arrive then
		return e.fact("last_seq") > e.fact("expected_last_seq")
	case ReasonLeaseLost: // fences rise too
		return e.fact("current_fence") > e.fact("fence")
	}
	switch e.Code {
	case codes.Aborted, codes.FailedPrecondition, codes.AlreadyExists, codes.NotFound:
		return e.listed()
	default:
		return false
	}
}

// fact returns a number in the metadata; 0: there is none.
func (e *Error) fact(name string) uint64 {
	n, _ := strconv.ParseUint(e.Metadata[name], 10, 64)
	return n
}

// ErrorOf returns the Error in a gRPC status, of any origin. The status must not be OK.
func ErrorOf(st *status.Status) *Error { return newError(context.Background(), st.Err()) }

// newError turns a gRPC error into an *Error. ctx is the context of the call.
func newError(ctx context.Context, err error) *Error {
	st := status.Convert(err)
	e := &Error{Code: st.Code(), Message: st.Message(), causes: []error{err}}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == errorDomain {
				e.Reason, e.Metadata = Reason(d.GetReason()), d.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Violations = append(e.Violations, Violation{
					Field: v.GetField(), Reason: Reason(v.GetReason()), Description: v.GetDescription(),
				})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = min(max(0, d.GetRetryDelay().AsDuration()), 1<<62) // room for the jitter
		}
	}
	switch {
	case ctx.Err() != nil:
		e.causes = append(e.causes, ctx.Err())
	case e.Code == codes.Unimplemented && e.Reason == "":
		e.Message += "; the server is no runlog, or of another major version: this client speaks " + apiVersion
	case e.Code == codes.DeadlineExceeded && e.Reason == "":
		// The server has a copy of the deadline, and its clock may be a moment ahead of ours.
		e.causes = append(e.causes, context.DeadlineExceeded)
	}
	return e
}
