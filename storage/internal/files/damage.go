package files

import "errors"

// DamageError says that a file of the data directory is missing or damaged. Its text is that of
// Cause.
type DamageError struct{ Cause error }

func (e *DamageError) Error() string { return e.Cause.Error() }

func (e *DamageError) Unwrap() error { return e.Cause }

// Damage marks an error as a DamageError.
func Damage(cause error) error { return &DamageError{cause} }

// Damaged reports whether an error is a DamageError.
func Damaged(err error) bool {
	_, is := errors.AsType[*DamageError](err)
	return is
}
