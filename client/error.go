package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errorDomain marks an ErrorInfo as runlog's own.
const errorDomain = "runlog"

// The reasons that this package acts on, if the gRPC code alone is not enough (contract section 7).
const (
	reasonOutcomeUnknown     = "OUTCOME_UNKNOWN"
	reasonStorageFailed      = "STORAGE_FAILED"
	reasonInvalidArgument    = "INVALID_ARGUMENT_FIELD"
	reasonSlowConsumer       = "SLOW_CONSUMER"
	reasonResumeTokenInvalid = "RESUME_TOKEN_INVALID"
)

// Error is a failed call (contract section 7).
type Error struct {
	// Code is the gRPC code.
	Code codes.Code
	// Reason names the failure, such as "RUN_NOT_FOUND". Empty if it did not come from a runlog
	// server: the connection failed, or the deadline passed on this side.
	Reason string
	// Message has the cause and the remedy for people.
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
	Reason      string
	Description string
}

// Error returns the reason (or the code) and the message on one line.
func (e *Error) Error() string {
	name := e.Reason
	if name == "" {
		name = e.Code.String()
	}
	return fmt.Sprintf("%s: %s", name, e.Message)
}

// Unwrap returns the gRPC error and, when the caller's context ended the call, the context's.
func (e *Error) Unwrap() []error { return e.causes }

// Retryable reports whether the same call may succeed later without a change.
func (e *Error) Retryable() bool {
	switch e.Code {
	case codes.Unavailable:
		return true
	case codes.ResourceExhausted:
		// gRPC itself uses this code for messages over its size limit; those stay too large.
		return e.Reason != "" || e.RetryAfter > 0
	case codes.DeadlineExceeded:
		return e.Reason == reasonOutcomeUnknown
	case codes.Aborted:
		return e.Reason == reasonSlowConsumer // the stream resumes with its token
	default:
		return false
	}
}

// unknown reports whether a call may have been stored despite its failure.
func (e *Error) unknown() bool {
	switch e.Reason {
	case reasonOutcomeUnknown, reasonStorageFailed:
		return true
	case "":
		return e.Code != codes.ResourceExhausted // the cause is a message limit
	default:
		return false
	}
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
				e.Reason, e.Metadata = d.GetReason(), d.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Violations = append(e.Violations, Violation{
					Field: v.GetField(), Reason: v.GetReason(), Description: v.GetDescription(),
				})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = max(0, d.GetRetryDelay().AsDuration())
		}
	}
	switch {
	case ctx.Err() != nil:
		e.causes = append(e.causes, ctx.Err())
	case e.Code == codes.DeadlineExceeded && e.Reason == "":
		// The server has a copy of the deadline, and its clock may be a moment ahead of ours.
		e.causes = append(e.causes, context.DeadlineExceeded)
	}
	return e
}
