package outbox

import (
	"errors"
	"fmt"
	"os"
)

// ErrLocked is the cause of a LockedError.
var ErrLocked = errors.New("outbox: the file is open elsewhere")

// LockedError means that this process or another one has the outbox open.
type LockedError struct {
	Path string // of the lock file
	PID  int    // of its holder; 0: unknown
}

// Error names the holder and the remedy.
func (e *LockedError) Error() string {
	holder := "another process"
	switch {
	case e.PID == os.Getpid():
		return fmt.Sprintf("outbox: %s is locked by this process; use the Outbox that is open, or close it first", e.Path)
	case e.PID > 0:
		holder = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("outbox: %s is locked by %s; stop it, or give each process an outbox of its own", e.Path, holder)
}

// Unwrap returns ErrLocked.
func (e *LockedError) Unwrap() error { return ErrLocked }
