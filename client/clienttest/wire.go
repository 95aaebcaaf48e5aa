package clienttest

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"

	"runlog/testbed/network"
)

// wire is the network between the nodes of a server and its clients.
type wire interface {
	// reserve returns an address of a node that is its own until free is called. Nothing listens
	// there yet.
	reserve(node int) (address string, free func(), err error)
	listen(address string) (net.Listener, error)
	dial(ctx context.Context, from, address string) (net.Conn, error)
	// host returns the name of a node's host.
	host(node int) string
	// dialOptions of clients.
	dialOptions() []grpc.DialOption
}

// loopback is the loopback interface of this machine. All nodes are one host.
type loopback struct{}

func (loopback) reserve(int) (address string, free func(), err error) { return reservePort() }

func (loopback) listen(address string) (net.Listener, error) {
	return holders.Listen(context.Background(), "tcp", address)
}

func (loopback) dial(ctx context.Context, _, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func (loopback) host(int) string { return "127.0.0.1" }

func (loopback) dialOptions() []grpc.DialOption { return nil }

// simulated is a network in memory.
type simulated struct{ *network.Network }

// reserve finds an address that the network has not given to anyone, and will not.
func (s simulated) reserve(node int) (address string, free func(), err error) {
	l, err := s.Listen("tcp", net.JoinHostPort(s.host(node), "0"))
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() {}, l.Close()
}

func (s simulated) listen(address string) (net.Listener, error) { return s.Listen("tcp", address) }

func (s simulated) dial(ctx context.Context, from, address string) (net.Conn, error) {
	return s.Dial(ctx, from, address)
}

// host is an IP address, which needs no name service, and one of the loopback, as of a server
// without TLS.
func (simulated) host(node int) string { return fmt.Sprint("127.0.0.", node+1) }

func (s simulated) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(s.Dialer(ClientHost))}
}
