package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Kind says why a store failed, and so whether a caller may try again.
type Kind string

// The kinds of failures. Only Transient may be tried again as it is.
const (
	NotFound    Kind = "not found"
	Denied      Kind = "denied"
	Invalid     Kind = "invalid"
	Unsupported Kind = "unsupported"
	Transient   Kind = "transient"
)

// Error is a failure of a store. It is fs.ErrNotExist if its Kind is NotFound, and fs.ErrPermission
// if it is Denied.
type Error struct {
	Op   string // open, read, put, allow or name
	URI  string // as Shown returns it
	Kind Kind
	Err  error
}

// Error says what failed, where and why.
func (e *Error) Error() string { return fmt.Sprintf("blob: %s %s: %s: %v", e.Op, e.URI, e.Kind, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is compares the kind with the errors of package fs.
func (e *Error) Is(target error) bool {
	return e.Kind == NotFound && target == fs.ErrNotExist || e.Kind == Denied && target == fs.ErrPermission
}

// Retryable reports whether the same call may succeed later.
func (e *Error) Retryable() bool { return e.Kind == Transient }

// SchemeError refuses a URI whose scheme has no store (PLAN-1).
type SchemeError struct {
	Scheme string
	Known  []string
}

// Error names the scheme and the known ones.
func (e *SchemeError) Error() string {
	return fmt.Sprintf("blob: the scheme %.40q is unknown: use one of %s, or register a store for it", e.Scheme, strings.Join(e.Known, ", "))
}

// Retryable reports false: the same call fails again.
func (*SchemeError) Retryable() bool { return false }

// TooLargeError refuses a blob that has more bytes than the caller reads.
type TooLargeError struct {
	URI   string
	Limit int64
}

// Error names the limit.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("blob: read %s: it has more than %d bytes: use a smaller blob", e.URI, e.Limit)
}

// Retryable reports false: the same call fails again.
func (*TooLargeError) Retryable() bool { return false }

var (
	errNotAllowed = errors.New("no allowed URI has it: add it to the allowed URIs, or use another one")
	errTimeout    = errors.New("the timeout is over: try again, or raise it")
)

func invalid(op, uri, format string, args ...any) error {
	return &Error{Op: op, URI: Shown(uri), Kind: Invalid, Err: fmt.Errorf(format, args...)}
}
