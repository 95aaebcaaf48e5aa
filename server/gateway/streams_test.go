package gateway

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestTooManyStreamsOverHTTPD12: streams over HTTP do not use up the connection of other calls.
func TestTooManyStreamsOverHTTPD12(t *testing.T) {
	t.Parallel()
	streams := make(gatewayStreams, 2)
	open := func(ctx context.Context) error {
		_, err := streams.open(ctx, nil, nil, "", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return nil, nil
		})
		return err
	}
	first, end := context.WithCancel(context.Background())
	for range 2 {
		if err := open(first); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(context.Background()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a third stream: %v", err)
	}
	end()
	for until := time.Now().Add(30 * time.Second); open(first) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("ended streams make no room")
		}
	}
}
