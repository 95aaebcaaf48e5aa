package queue_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestJumpedClockQUE9: leases and delays last what they say, within a tenth, however the leader's
// clock jumps meanwhile, and whether it jumps back.
func TestJumpedClockQUE9(t *testing.T) {
	t.Parallel()
	const ttl, delay = 3 * time.Second, 5 * time.Second
	for _, c := range []struct{ jump, lasts time.Duration }{
		{600 * time.Second, 2 * time.Second}, {600 * time.Second, time.Hour}, {365 * 24 * time.Hour, time.Hour},
		{-600 * time.Second, 2 * time.Second}, {-600 * time.Second, time.Hour}, {20 * time.Millisecond, time.Second},
	} {
		t.Run(fmt.Sprint(c.jump, " for ", c.lasts), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				clock := &aheadClock{}
				n := servertest.Start(t, func(o *server.Options) { o.Clock, o.Monotonic = clock.now, time.Now })
				put(n, &runlogv1.QueueSettings{LeaseTtl: durationpb.New(ttl)})
				before := n.Request("before").Run.RunId
				n.Lease()
				began := time.Now()
				at := timestamppb.New(began.Add(delay))
				late := n.Request("late", func(r *runlogv1.RequestRunRequest) { r.NotBefore = at }).Run.RunId
				clock.by.Store(int64(c.jump))
				during := n.Request("during", func(r *runlogv1.RequestRunRequest) { r.Priority = proto.Uint32(9) }).Run.RunId
				if l := n.Lease(); len(l) != 1 || l[0].RunId != during {
					t.Fatalf("leases %v while the clock is wrong, want %s alone", l, during)
				}
				back := time.AfterFunc(c.lasts, func() { clock.by.Store(0) })
				defer back.Stop()
				// The workers of both runs die. Each run is leased again after its lease.
				after := map[string]time.Duration{}
				for len(after) < 3 {
					for _, l := range n.Lease(waiting(time.Minute)) {
						if after[l.RunId] == 0 {
							after[l.RunId] = time.Since(began)
						}
					}
				}
				for run, lasts := range map[string]time.Duration{before: ttl, during: ttl, late: delay} {
					if got := after[run]; got < lasts*9/10 || got > lasts*12/10 {
						t.Errorf("%s is leased after %v, want %v", run, got, lasts)
					}
				}
			})
		})
	}
}
