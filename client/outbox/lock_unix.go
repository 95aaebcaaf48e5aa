//go:build unix && !solaris && !aix

package outbox

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lockFile locks a file, which it makes if needed, and writes this process's id into it. The file
// stays when it is unlocked: if a process removed it, two others could lock two files of its name.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		held := errors.Is(err, syscall.EWOULDBLOCK)
		err = error(&os.PathError{Op: "lock", Path: path, Err: err})
		if held {
			err = &LockedError{Path: path, PID: readPID(f)}
		}
		return nil, errors.Join(err, f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return nil, errors.Join(err, f.Close())
	}
	// A full disk cannot take the id. An outbox must open nevertheless, to be drained.
	return flocked{f}, nil
}

func readPID(f *os.File) int {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	return pid
}

// flocked is a locked file.
type flocked struct{ *os.File }

// Close gives the lock back. Closing the file alone would leave it with a child process that is
// between fork and exec.
func (f flocked) Close() error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.File.Close())
}
