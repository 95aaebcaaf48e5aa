package queue_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestEveryRunIsLeasedOnceQUE6: many workers wait, with several filters, while runs are requested
// in queues with few slots, fail to start, start and end. Each run is started by one lease, and no
// worker waits while a run may be leased.
func TestEveryRunIsLeasedOnceQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		const runs, workers, queues = 120, 16, 3
		n := servertest.Start(t)
		for i := range queues {
			_, err := n.Queues().PutQueue(n.Context(), &runlogv1.PutQueueRequest{
				TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", Queue: fmt.Sprint("q", i),
				Settings: &runlogv1.QueueSettings{MaxRunning: proto.Uint64(2)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		started := map[string]int{}
		done := make(chan struct{})
		end := func(l *runlogv1.Lease) {
			if l.StartAttempt == 1 && l.RunId[len(l.RunId)-1]%2 == 0 {
				release(n, l, runlogv1.LeaseOutcome_FAILED, func(r *runlogv1.ReleaseLeaseRequest) { r.RetryAfter = durationpb.New(0) })
				return
			}
			release(n, l, runlogv1.LeaseOutcome_STARTED)
			mu.Lock()
			started[l.RunId]++
			all := len(started) == runs
			mu.Unlock()
			n.Append(l.RunId, servertest.RunEnd(contract.RunCancelled))
			if all {
				close(done)
			}
		}
		var group sync.WaitGroup
		for w := range workers {
			group.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					for _, l := range n.Lease(waiting(time.Second), func(r *runlogv1.LeaseRunsRequest) {
						r.Max = uint32(1 + w%3)
						if w%4 > 0 {
							r.ProjectId, r.EnvironmentId, r.Queue = "billing", "prod", fmt.Sprint("q", w%queues)
						}
					}) {
						end(l)
					}
				}
			})
		}
		for i := range runs {
			n.Request(fmt.Sprint("r", i), servertest.Named(fmt.Sprint("run-", i)), func(r *runlogv1.RequestRunRequest) { r.Queue = fmt.Sprint("q", i%queues) })
		}
		select {
		case <-done:
		case <-time.After(servertest.Patience):
			t.Fatal("a run was not started")
		}
		group.Wait()
		for id, times := range started {
			if times != 1 {
				t.Errorf("run %s was started %d times", id, times)
			}
		}
		if got := n.Metric("runlog_queue_runs"); got != 0 {
			t.Errorf("%v runs are left", got)
		}
	})
}
