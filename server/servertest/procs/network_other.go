//go:build unix && !linux

package procs

import "testing"

// Network needs Linux.
type Network struct{}

// WhyNoNetwork returns what a Network lacks.
func WhyNoNetwork() string { return "network namespaces want Linux" }

// NewNetwork fails the test.
func NewNetwork(t testing.TB, _ int) *Network {
	t.Fatal(WhyNoNetwork())
	return nil
}

func (*Network) space(int) string                  { return "" }
func (*Network) peerIP(int) string                 { return "" }
func (*Network) clientIP(int) string               { return "" }
func (*Network) cut(Fault, int, int) (heal func()) { return func() {} }
