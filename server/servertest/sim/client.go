package sim

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// bearer is the API token of a host.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// dial makes a gRPC connection from a host to a node. The stranger has a token of its own, and the
// leaver one for each call.
func (w *world) dial(host string, node int) (*grpc.ClientConn, error) {
	token := w.admin
	if host == stranger {
		token = w.foreign
	}
	var credentials []grpc.DialOption
	if host != leaver {
		credentials = append(credentials, grpc.WithPerRPCCredentials(token))
	}
	conn, err := grpc.NewClient("passthrough:///"+w.nodes[node].host+grpcPort, append(credentials,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return w.net.Dial(ctx, host, to) }),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}))...)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return conn, nil
}
