package server

import (
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout sets how long sent data may stay unacknowledged (tcp(7), TCP_USER_TIMEOUT).
func setUserTimeout(fd int, limit time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
}
