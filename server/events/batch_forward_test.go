package events_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestBatchThroughFollowerAPP3: the answer of a batch that another node than the leader takes fits
// what clients in other languages take: 8 KiB of headers, and 4 MiB.
func TestBatchThroughFollowerAPP3(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		follower := all.Followers()[0]
		waitKnowsLeader(t, follower)
		stored, refused := &runlogv1.BatchAppendRequest{}, &runlogv1.BatchAppendRequest{}
		for i := range 1000 {
			run := fmt.Sprintf("batch-%d", i)
			stored.Requests = append(stored.Requests, &runlogv1.AppendEventsRequest{RunId: run, Events: servertest.Steps(run, 1)})
			events := make([]*runlogv1.EventWrite, 10)
			for j := range events {
				events[j] = &runlogv1.EventWrite{}
			}
			refused.Requests = append(refused.Requests, &runlogv1.AppendEventsRequest{RunId: run, Events: events})
		}
		for name, req := range map[string]*runlogv1.BatchAppendRequest{"stored": stored, "refused": refused} {
			var header metadata.MD
			var resp *runlogv1.BatchAppendResponse
			// The machine may be so busy that a leader is lost.
			bubble.Until(t, "a leader answers the whole batch", func() bool {
				var err error
				header = nil
				resp, err = follower.Events.BatchAppend(follower.Context(), req, grpc.Header(&header), grpc.MaxCallRecvMsgSize(64<<20))
				return err == nil && !slices.ContainsFunc(resp.Outcomes, func(o *runlogv1.BatchAppendOutcome) bool {
					return codes.Code(o.GetStatus().GetCode()) == codes.Unavailable
				})
			})
			size := 0
			for key, values := range header {
				for _, v := range values {
					size += len(key) + len(v) + 32 // RFC 7541
				}
			}
			if told := header.Get("runlog-leader"); len(told) > 1 || name == "stored" && len(told) == 0 || size > 8<<10 {
				t.Errorf("%s: the leader is named %d times, in %d bytes of headers", name, len(told), size)
			}
			if size := proto.Size(resp); size > 4<<20 {
				t.Errorf("%s: answer of %d bytes", name, size)
			}
			for i, o := range resp.Outcomes {
				if (o.GetStatus().GetCode() == 0) != (name == "stored") {
					t.Fatalf("%s: outcome %d: %v", name, i, o.Status)
				}
			}
		}
	})
}

func waitKnowsLeader(t testing.TB, n *servertest.Node) {
	t.Helper()
	bubble.Until(t, "the follower knows the leader", func() bool { return n.Server.Internals().Cluster.LeaderAddress() != "" })
}
