package server

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
)

// TestHealthIsBounded: callers without credentials may ask for health, but hold little memory: a
// message has the limits of others, watches have a number, and no name of a service is kept.
func TestHealthIsBounded(t *testing.T) {
	t.Parallel()
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
	for range healthWatches {
		if err := watch(""); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, watch(""), contract.ReasonOverloaded)
	if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("a check beside the watches: %v", err)
	}
}
