package bench

import (
	"os"

	"golang.org/x/sys/unix"
)

// evict drops a file's clean pages from the system's cache.
func evict(f *os.File) error {
	return os.NewSyscallError("fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
