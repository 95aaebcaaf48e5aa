package list

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the processor time of the calling thread: other programs on the machine do not
// count.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
