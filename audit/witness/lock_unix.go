//go:build unix

package witness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrLocked means that another process has the state.
var ErrLocked = errors.New("witness: another process has the state")

// lockFile locks a file, which it makes, until it is closed or the process ends.
func lockFile(path string) (io.Closer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%w: %s is locked", ErrLocked, path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
