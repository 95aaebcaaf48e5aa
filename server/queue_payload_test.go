package server

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/testbed/bubble"
)

// TestSmallPayloadsQUE7: a limit of payloads does not stop what the authority says of a run, and
// with it the time of all queues.
func TestSmallPayloadsQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		clock := &aheadClock{}
		n := startNode(t, func(o *Options) { o.Clock, o.MaxPayloadBytes = clock.now, 100 })
		n.put(&runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(1)})
		run := n.request("r1").Run.RunId
		if got := n.lease(); len(got) != 1 {
			t.Fatalf("leases %v", got)
		}
		n.request("late", named("late"), func(r *runlogv1.RequestRunRequest) {
			r.RunRequestId, r.NotBefore = "l", timestamppb.New(time.Now().Add(time.Hour))
		})
		clock.by.Add(int64(2 * time.Hour))
		bubble.Until(t, "the run fails", func() bool { return n.snapshot(run).Status == runlogv1.RunStatus_FAILED })
		bubble.Until(t, "the other run is ready", func() bool { return n.queue().Ready == 1 })
	})
}
