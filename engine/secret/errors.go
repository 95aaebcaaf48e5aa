package secret

import (
	"context"
	"errors"
	"fmt"
)

// The reasons of an Error.
var (
	// ErrReference: the reference is malformed or of an unknown scheme.
	ErrReference = errors.New("the reference is invalid")
	// ErrNotFound: there is no secret with this reference.
	ErrNotFound = errors.New("there is no such secret")
	// ErrDenied: the store refuses the worker.
	ErrDenied = errors.New("access is denied")
	// ErrUnavailable: the store does not answer. The caller may try again.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrValue: the secret is there, and cannot be used.
	ErrValue = errors.New("the value cannot be used")
)

// Error is the failure of one reference. It never has the value.
type Error struct {
	// Ref is the reference, or "#2" for the second one of a call if its scheme is unknown.
	Ref string
	// Reason is one of the reasons of this package. errors.Is finds it.
	Reason error
	// Detail says what to do. It may be empty.
	Detail string
}

// Error returns the reference, the reason and the detail.
func (e *Error) Error() string {
	text := fmt.Sprintf("secret %s: %v", e.Ref, e.Reason)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Reason }

// Retryable reports whether Resolve may succeed when it is called again: each of its failures is
// ErrUnavailable.
func Retryable(err error) bool {
	for _, lasting := range []error{ErrReference, ErrNotFound, ErrDenied, ErrValue, context.Canceled} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return errors.Is(err, ErrUnavailable)
}
