package sim

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	runlogv1 "runlog/proto/runlog/v1"
)

// dial makes a host's connection to a node.
func (w *world) dial(host string, node int) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+w.nodes[node].host+grpcPort,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return w.net.dial(ctx, host, to) }),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return conn, nil
}

// operator is a host from which nodes are told what to do.
type operator struct{ world *world }

// transfer asks a node to hand the leadership over, to whomever it likes.
func (o operator) transfer(ctx context.Context, node int) error {
	conn, err := o.world.dial("operator", node)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = runlogv1.NewClusterServiceClient(conn).TransferLeadership(ctx, &runlogv1.TransferLeadershipRequest{})
	return err
}
