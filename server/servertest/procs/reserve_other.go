//go:build unix && !linux

package procs

import (
	"net"
	"testing"
)

// Reserve returns loopback addresses that were free a moment ago. Only Linux lets a test keep an
// address at which another process listens.
func Reserve(t testing.TB, n int) []string {
	t.Helper()
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // when all are chosen, so that they differ
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}
