package queue_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestSmallPayloadsQUE7: a limit of payloads does not stop what the authority says of a run, and
// with it the time of all queues.
func TestSmallPayloadsQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		clock := &aheadClock{}
		n := servertest.Start(t, func(o *server.Options) { o.Clock, o.MaxPayloadBytes = clock.now, 100 })
		put(n, &runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(1)})
		run := n.Request("r1").Run.RunId
		if got := n.Lease(); len(got) != 1 {
			t.Fatalf("leases %v", got)
		}
		n.Request("late", servertest.Named("late"), func(r *runlogv1.RequestRunRequest) {
			r.RunRequestId, r.NotBefore = "l", timestamppb.New(time.Now().Add(time.Hour))
		})
		clock.by.Add(int64(2 * time.Hour))
		bubble.Until(t, "the run fails", func() bool { return n.Snapshot(run).Status == runlogv1.RunStatus_FAILED })
		bubble.Until(t, "the other run is ready", func() bool { return queue(n).Ready == 1 })
	})
}
