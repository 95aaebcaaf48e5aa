package sim

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"

	"runlog/client"
)

// minBackoff and maxBackoff are those of connections, and of the retries of the product's client.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second
)

// dial makes a gRPC connection from a host to a node. The stranger has a token of its own, and
// bare hosts one for each call.
func (w *world) dial(host string, node int) (*grpc.ClientConn, error) {
	token := w.admin
	if host == stranger {
		token = w.foreign
	}
	var credentials []grpc.DialOption
	if !slices.Contains(bare, host) {
		credentials = append(credentials, grpc.WithPerRPCCredentials(token))
	}
	conn, err := grpc.NewClient("passthrough:///"+w.nodes[node].host+grpcPort, append(credentials,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		w.dialer(host),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: time.Second,
		}))...)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return conn, nil
}

// dialer makes the connections of a host.
func (w *world) dialer(host string) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return w.net.Dial(ctx, host, to) })
}

// connect makes the product's client of a host. It has the addresses that leaders call themselves,
// and knows the cluster by nothing else.
func (w *world) connect(host string, opts ...grpc.DialOption) (*client.Client, error) {
	var addresses []string
	for _, n := range w.nodes {
		addresses = append(addresses, n.host+grpcPort)
	}
	if !slices.Contains(bare, host) {
		opts = append(opts, grpc.WithPerRPCCredentials(w.admin))
	}
	all, err := client.Dial(strings.Join(addresses, ","), client.Options{
		MinBackoff: minBackoff, MaxBackoff: maxBackoff,
		DialOptions: append(opts, w.dialer(host), grpc.WithResolvers(names{resolver.Get("passthrough")})),
	})
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return all, nil
}

// names resolves the names of hosts to themselves.
type names struct{ resolver.Builder }

// Scheme is that of addresses without a scheme.
func (names) Scheme() string { return "dns" }
