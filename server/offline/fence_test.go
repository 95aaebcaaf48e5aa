package offline_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/offline"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestFencesAfterRestoreQUE8: no lease of a cluster has the fence of a lease of the cluster whose
// backup it continues from, nor of another one that does. What the old cluster's workers hold is
// refused from the start, also before the runs are leased again, and whether they were started or
// not.
func TestFencesAfterRestoreQUE8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		old := servertest.Start(t, servertest.OnDisk(t))
		old.Request("r1", servertest.Named("leased"))
		old.Request("r2", servertest.Named("started"))
		before := old.Lease(servertest.AtMost(2))
		release := func(n *servertest.Node, l *runlogv1.Lease) error {
			_, err := n.Queues().ReleaseLease(n.Context(), &runlogv1.ReleaseLeaseRequest{RunId: l.RunId, Fence: l.Fence, Outcome: runlogv1.LeaseOutcome_STARTED})
			return err
		}
		write := func(n *servertest.Node, l *runlogv1.Lease) error {
			_, err := n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{
				RunId: l.RunId, Fence: &l.Fence, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunStarted)},
			})
			return err
		}
		if err := release(old, before[1]); err != nil {
			t.Fatal(err)
		}
		repo := servertest.NewRepository(t)
		old.BackUp(repo)
		type lease struct {
			run   string
			fence uint64
		}
		given := map[lease]bool{}
		for _, l := range before {
			given[lease{l.RunId, l.Fence}] = true
		}
		for range 2 {
			n := servertest.RestoredFrom(t, repo, "", nil)
			n.Start()
			refused := func(when string) {
				t.Helper()
				for _, l := range before {
					_, set := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: l.RunId, EngineRunRef: "e/1", Fence: &l.Fence})
					_, renew := n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: l.RunId, Fence: l.Fence})
					for _, err := range []error{write(n, l), set, renew} {
						servertest.Refused(t, err, contract.ReasonLeaseLost)
					}
					if events := n.List(l.RunId); len(events) != 1 {
						t.Errorf("%s, %s: events %v", l.RunId, when, events)
					}
				}
				servertest.Refused(t, release(n, before[0]), contract.ReasonLeaseLost)
			}
			refused("before any lease")
			n.Restart()
			refused("after a restart")
			if _, err := n.Queues().RequeueRun(n.Context(), &runlogv1.RequeueRunRequest{RunId: "started"}); err != nil {
				t.Fatal(err)
			}
			n.Request("r3", servertest.Named("new"))
			var leases []*runlogv1.Lease
			for len(leases) < 3 { // The lease of before expires, and a call waits for that.
				leases = append(leases, n.Lease(servertest.AtMost(3), func(r *runlogv1.LeaseRunsRequest) {
					r.Wait = durationpb.New(time.Minute)
				})...)
			}
			refused("after the lease")
			for _, l := range leases {
				id := lease{l.RunId, l.Fence}
				if given[id] {
					t.Errorf("%s is leased again under fence %d", l.RunId, l.Fence)
				}
				given[id] = true
				if err := write(n, l); err != nil {
					t.Errorf("%s under fence %d: %v", l.RunId, l.Fence, err)
				}
				if err := release(n, l); err != nil {
					t.Errorf("%s under fence %d: %v", l.RunId, l.Fence, err)
				}
			}
		}
	})
}

// TestFencesAfterRecoveryQUE8: a node that lacks a lease which the lost majority has given is
// recovered. It gives another fence, and the worker of the lost lease neither writes nor releases.
func TestFencesAfterRecoveryQUE8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t))
		all[0].Request("r1", servertest.Named("run"))
		var behind *servertest.Node
		var rest servertest.Nodes
		for _, n := range all {
			if behind == nil && !n.Server.Internals().Replica.Leading() {
				behind = n
			} else {
				rest = append(rest, n)
			}
		}
		bubble.Until(t, "the follower has the run", func() bool {
			r, err := behind.Server.Internals().Replica.Store().Run("run")
			return err == nil && r.Fence != 0
		})
		behind.Close()
		lost := rest[0].Lease(waitALittle)[0]
		rest.Close()
		behind.Opts.Join, behind.Opts.BootstrapExpect = nil, 0
		if _, err := offline.Recover(servertest.OfflineOptions(behind.Opts)); err != nil {
			t.Fatal(err)
		}
		behind.Opts.Registry = nil
		behind.Start()
		write := func() {
			t.Helper()
			_, err := behind.Events.AppendEvents(behind.Context(), &runlogv1.AppendEventsRequest{
				RunId: "run", Fence: &lost.Fence, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunStarted)},
			})
			servertest.Refused(t, err, contract.ReasonLeaseLost)
		}
		write()
		if next := behind.Lease(waitALittle)[0]; next.Fence <= lost.Fence {
			t.Errorf("fence %d after %d of before", next.Fence, lost.Fence)
		}
		write()
		_, err := behind.Queues().ReleaseLease(behind.Context(), &runlogv1.ReleaseLeaseRequest{
			RunId: "run", Fence: lost.Fence, Outcome: runlogv1.LeaseOutcome_STARTED,
		})
		servertest.Refused(t, err, contract.ReasonLeaseLost)
	})
}

// waitALittle lets a lease wait for a leader and for a run.
func waitALittle(r *runlogv1.LeaseRunsRequest) { r.Wait = durationpb.New(30 * time.Second) }
