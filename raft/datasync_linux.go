package raft

import (
	"errors"
	"os"
	"syscall"
)

// datasync is fdatasync(2): the data, and of the metadata what is needed to read it back.
func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
