//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package clienttest

import "net"

// holders are listeners.
var holders net.ListenConfig

// reservePort returns a free port. This system cannot hold one without listening.
func reservePort() (address string, free func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() {}, l.Close()
}
