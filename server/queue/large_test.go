package queue_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestLargeContextsQUE6: a worker gets as many runs as fit in an answer that any client takes. A
// larger answer would not arrive, and each of its runs would have lost a start attempt.
func TestLargeContextsQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		list := make([]any, 5000) // Each number is 11 bytes of a message.
		for i := range list {
			list[i] = 1.0
		}
		given, err := structpb.NewStruct(map[string]any{"text": strings.Repeat("x", 40_000), "list": list})
		if err != nil {
			t.Fatal(err)
		}
		const runs = 60
		for i := range runs {
			n.Request(strings.Repeat("r", i+1), func(r *runlogv1.RequestRunRequest) { r.Context = given })
		}
		conn, err := grpc.NewClient(n.Server.Addresses().GRPC, n.Dialer(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		for leased := 0; leased < runs; {
			resp, err := runlogv1.NewQueueServiceClient(conn).LeaseRuns(n.Context(), &runlogv1.LeaseRunsRequest{Worker: "w", Max: 100})
			if err != nil || len(resp.Leases) == 0 {
				t.Fatalf("after %d leases: %v", leased, err)
			}
			leased += len(resp.Leases)
		}
	})
}
