package procs

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Reserve returns loopback addresses for processes, which stay theirs until the test ends, also
// while no process listens there. A socket of the test is bound to each and never listens. The
// kernel gives the port to no other socket and refuses connections to it. It lets a process listen
// there, because both sockets may share the address.
func Reserve(t testing.TB, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // as package net does
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Addr: netip.MustParseAddr("127.0.0.1").As4()})
		}
		if err != nil {
			t.Fatal(err)
		}
		at, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		of := at.(*unix.SockaddrInet4)
		addresses[i] = (&net.TCPAddr{IP: of.Addr[:], Port: of.Port}).String()
	}
	return addresses
}
