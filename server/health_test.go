package server_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestHealthIsBounded: callers without credentials may ask for health, but hold little memory: a
// message has the limits of others, watches have a number, and no name of a service is kept.
func TestHealthIsBounded(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { servertest.Secured(o) })
		health := grpc_health_v1.NewHealthClient(plainConn(t, n))
		_, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", 17<<20)})
		servertest.Refused(t, err, contract.ReasonPayloadTooLarge)
		watch := func(service string) error {
			stream, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		servertest.WantEqual(t, "a watch of another service", status.Code(watch("unknown")), codes.NotFound)
		for range server.HealthWatchesOfOne {
			if err := watch(""); err != nil {
				t.Fatal(err)
			}
		}
		servertest.Refused(t, watch(""), contract.ReasonOverloaded)
		if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Errorf("a check beside the watches: %v", err)
		}
		// Another address has watches of its own.
		elsewhere := grpc_health_v1.NewHealthClient(plainConn(t, n, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return servertest.Net(t).Dial(ctx, "127.0.0.2", address)
		})))
		stream, err := elsewhere.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Errorf("a watch from another address: %v", err)
		}
	})
}
