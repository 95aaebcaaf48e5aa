package bench

import (
	"os"

	"golang.org/x/sys/unix"
)

// evict has the system let go of a file's bytes that it has in memory, as far as they are on the
// disk.
func evict(f *os.File) error {
	return os.NewSyscallError("fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
