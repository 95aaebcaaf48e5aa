package api

import (
	"errors"
	"fmt"
	"net/http"
)

// Error is a call of Conductor that has failed.
type Error struct {
	// Op says what was tried, such as "pause workflow 4711".
	Op string
	// Status is that of HTTP. 0: there was no answer, and the call may have taken effect.
	Status int
	// Message is the cause: the text of Conductor, or that of the network.
	Message string

	cause error
}

// Error returns operation, cause and remedy.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("conductor: cannot %s: %s; %s", e.Op, e.Message, e.Remedy())
	}
	return fmt.Sprintf("conductor: cannot %s: status %d, %s; %s", e.Op, e.Status, e.Message, e.Remedy())
}

// Unwrap returns the error of the network or of a context; nil after an answer.
func (e *Error) Unwrap() error { return e.cause }

// Remedy says what to do.
func (e *Error) Remedy() string {
	switch {
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return "check the value of X-Authorization, and what it may do"
	case e.Status == http.StatusNotFound:
		return "check the URL; or the workflow was removed from Conductor"
	case e.Status == http.StatusConflict:
		return "the workflow has ended: read its status"
	case e.Status >= 300 && e.Status < 400:
		return "use the URL that Conductor redirects to"
	case e.Status >= 400 && e.Status < 500 && !e.Temporary():
		return "correct the request; this Conductor may be of another version"
	default:
		return "try again; check that Conductor is up, and its log"
	}
}

// Temporary reports whether the same call may succeed later. A state that does not allow a call is
// 500 at Conductor, and so counts as temporary too.
func (e *Error) Temporary() bool {
	return e.Status == 0 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout || e.Status >= 500
}

// HasStatus reports whether err is an answer of Conductor with a status of HTTP.
func HasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}
