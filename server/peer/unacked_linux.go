package peer

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// endUnacked makes the kernel end a connection whose data is not acknowledged for so long
// (RFC 5482). Without it, TCP sends the data again at times that double: a connection that was cut
// for some time stays silent for as long again.
func endUnacked(conn *net.TCPConn, after time.Duration) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
}
