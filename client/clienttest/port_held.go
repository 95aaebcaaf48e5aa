//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package clienttest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// holders are listeners that share their port with its reservation.
var holders = net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = share(int(fd)) })
	return errors.Join(err, failed)
}}

// share lets a listener be bound to a port that is reserved. On Linux, the first option does; the
// second one would allow two listeners.
func share(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && runtime.GOOS != "linux" {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	return os.NewSyscallError("setsockopt", err)
}

// reservePort binds a socket to a free port, and does not listen: connections are refused, and the
// system gives the port to no other process.
func reservePort() (address string, free func(), err error) {
	syscall.ForkLock.RLock() // a child would hold the port
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	free = func() { _ = unix.Close(fd) } // nothing was written
	if err = errors.Join(share(fd), unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})); err == nil {
		var at unix.Sockaddr
		if at, err = unix.Getsockname(fd); err == nil {
			return fmt.Sprint("127.0.0.1:", at.(*unix.SockaddrInet4).Port), free, nil
		}
	}
	free()
	return "", nil, fmt.Errorf("reserve a port: %w", err)
}
