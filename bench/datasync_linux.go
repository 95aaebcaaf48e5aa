package bench

import (
	"errors"
	"os"
	"syscall"
)

// datasync makes a file's data durable, and the metadata needed to read it (fdatasync(2)).
func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
