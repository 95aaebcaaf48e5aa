package server

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	"runlog/testbed/bubble"
)

// TestHealthIsBounded: callers without credentials may ask for health, but hold little memory: a
// message has the limits of others, watches have a number, and no name of a service is kept.
func TestHealthIsBounded(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { secured(o) })
		health := grpc_health_v1.NewHealthClient(plainConn(t, n))
		_, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", 17<<20)})
		refused(t, err, contract.ReasonPayloadTooLarge)
		watch := func(service string) error {
			stream, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		wantEqual(t, "a watch of another service", status.Code(watch("unknown")), codes.NotFound)
		for range healthWatchesOfOne {
			if err := watch(""); err != nil {
				t.Fatal(err)
			}
		}
		refused(t, watch(""), contract.ReasonOverloaded)
		if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Errorf("a check beside the watches: %v", err)
		}
		// Another address has watches of its own.
		elsewhere := grpc_health_v1.NewHealthClient(plainConn(t, n, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return netOf(t).Dial(ctx, "127.0.0.2", address)
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

// TestSharesOfHealth: an address, or a network of IPv6 that one machine may have, can use its share
// of the watches alone, and gets it back when its watches end.
func TestSharesOfHealth(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		h := newHealthChecks(nil)
		at := func(host string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(host), Port: 1} }
		var ends []func()
		take := func(host string) bool {
			end, ok := h.take(at(host))
			if ok {
				ends = append(ends, end)
			}
			return ok
		}
		for i := range healthWatchesOfOne {
			if !take(fmt.Sprintf("2001:db8::%x", i)) {
				t.Fatal("its share is refused")
			}
		}
		if take("2001:db8::ffff:1:2:3") || !take("2001:db8:0:1::1") || !take("192.0.2.1") || !take("::ffff:192.0.2.1") {
			t.Error("a network of IPv6 is not one address, or another address is refused")
		}
		for i := 0; len(ends) < healthWatches; i++ {
			if !take(fmt.Sprintf("192.0.3.%d", i)) {
				t.Fatalf("refused after %d watches", len(ends))
			}
		}
		if take("198.51.100.1") {
			t.Error("more than all watches")
		}
		for _, end := range ends {
			end()
		}
		if len(h.mu.open) != 0 || h.mu.all != 0 || !take("198.51.100.1") {
			t.Errorf("after the end: %v, %d", h.mu.open, h.mu.all)
		}
	})
}
