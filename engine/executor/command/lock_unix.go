//go:build unix

package command

import (
	"os"
	"syscall"
)

// lock locks a file until it is closed, and reports whether no other process has locked it.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// openLock opens what may be any file of another user.
func openLock(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
