package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestSettingsQUE3: a queue has defaults from its first request on. A setting that a change leaves
// out stays.
func TestSettingsQUE3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("r1")
		want := &runlogv1.QueueSettings{
			MaxRunning: proto.Uint64(0), MaxQueued: proto.Uint64(0), OnFull: runlogv1.OnFull_QUEUE, Delay: durationpb.New(0),
			LeaseTtl: durationpb.New(30 * time.Second), MaxStartAttempts: proto.Uint32(5), AgingPeriod: durationpb.New(10 * time.Minute), Paused: proto.Bool(false),
		}
		if q := queue(n); !proto.Equal(q.Settings, want) || q.Queue != "default" || q.Ready != 1 || q.ReadyByPriority[5] != 1 || q.OldestAt == nil {
			t.Errorf("queue %v", q)
		}
		for _, change := range []*runlogv1.QueueSettings{
			{MaxRunning: proto.Uint64(7), OnFull: runlogv1.OnFull_DELAY, Delay: durationpb.New(time.Minute)},
			{LeaseTtl: durationpb.New(time.Hour), Paused: proto.Bool(true)},
			nil,
		} {
			if change != nil {
				proto.Merge(want, change)
			}
			if q := put(n, change); !proto.Equal(q.Settings, want) {
				t.Errorf("settings %v, want %v", q.Settings, want)
			}
		}
		if l := n.Lease(); len(l) > 0 {
			t.Errorf("a paused queue gave %v", l)
		}
		name := &runlogv1.ResumeQueueRequest{TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod"}
		if got, err := n.Queues().ResumeQueue(n.Context(), name); err != nil || got.Queue.Settings.GetPaused() {
			t.Errorf("resumed: %v, %v", got, err)
		}
		l := n.Lease()
		if left := time.Until(l[0].ExpireTime.AsTime()); left < 30*time.Minute {
			t.Errorf("the lease lasts %v", left)
		}
		pause := &runlogv1.PauseQueueRequest{TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod"}
		if got, err := n.Queues().PauseQueue(n.Context(), pause); err != nil || !got.Queue.Settings.GetPaused() || got.Queue.Leased != 1 {
			t.Errorf("paused: %v, %v", got, err)
		}
		release(n, l[0], runlogv1.LeaseOutcome_STARTED) // Leases that there are go on.
	})
}

// TestQueuesTakeTurnsQUE6: a worker of several queues gets runs of each in turn.
func TestQueuesTakeTurnsQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i := range 9 {
			n.Request(fmt.Sprint("r", i), func(r *runlogv1.RequestRunRequest) { r.Queue = []string{"a", "b", "c"}[i/3] })
		}
		var order []string
		for range 9 {
			order = append(order, n.Lease()[0].Queue)
		}
		if want := []string{"a", "b", "c", "a", "b", "c", "a", "b", "c"}; !slices.Equal(order, want) {
			t.Errorf("order %v", order)
		}
	})
}

// TestListQueuesQUE10: the lists have everything once, whatever the size of the page.
func TestListQueuesQUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i := range 7 {
			n.Request(fmt.Sprint("r", i), func(r *runlogv1.RequestRunRequest) {
				r.TenantId, r.ProjectId = []string{"acme", "beta"}[i%2], fmt.Sprint("p", i%3)
			})
		}
		list := func(tenant, project string, size uint32) (names []string) {
			req := &runlogv1.ListQueuesRequest{TenantId: tenant, ProjectId: project, PageSize: size}
			for {
				got, err := n.Queues().ListQueues(n.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for _, q := range got.Queues {
					names = append(names, q.TenantId+"/"+q.ProjectId)
				}
				if req.PageToken = got.NextPageToken; req.PageToken == "" {
					return names
				}
			}
		}
		for _, size := range []uint32{0, 1, 2, 6} {
			if got := list("", "", size); !slices.Equal(got, []string{"acme/p0", "acme/p1", "acme/p2", "beta/p0", "beta/p1", "beta/p2"}) {
				t.Errorf("pages of %d: %v", size, got)
			}
		}
		if got := list("beta", "p1", 1); !slices.Equal(got, []string{"beta/p1"}) {
			t.Errorf("one project: %v", got)
		}
		first, err := n.Queues().ListQueues(n.Context(), &runlogv1.ListQueuesRequest{PageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.Queues().ListQueues(n.Context(), &runlogv1.ListQueuesRequest{TenantId: "acme", PageToken: first.NextPageToken})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
	})
}

// TestListQueuedRunsQUE10: a queue lists its runs in the order in which they would be leased, and
// those in other states.
func TestListQueuedRunsQUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i, id := range []string{"leased", "running", "low", "high", "late"} {
			n.Request(id, servertest.Named(id), func(r *runlogv1.RequestRunRequest) {
				r.Priority = proto.Uint32([]uint32{9, 9, 1, 8, 5}[i])
				if id == "late" {
					r.NotBefore = timestamppb.New(time.Now().Add(time.Hour))
				}
			})
		}
		leases := n.Lease(servertest.AtMost(2))
		release(n, leases[1], runlogv1.LeaseOutcome_STARTED)
		list := func(size uint32, states ...runlogv1.QueuedRunState_Value) (ids []string) {
			req := &runlogv1.ListQueuedRunsRequest{TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", PageSize: size, State: states}
			for {
				got, err := n.Queues().ListQueuedRuns(n.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range got.Runs {
					ids = append(ids, r.RunId)
				}
				if req.PageToken = got.NextPageToken; req.PageToken == "" {
					return ids
				}
			}
		}
		for _, size := range []uint32{0, 1, 2} {
			if got := list(size); !slices.Equal(got, []string{"high", "low", "late", "leased", "running"}) {
				t.Errorf("pages of %d: %v", size, got)
			}
			if got := list(size, runlogv1.QueuedRunState_RUNNING, runlogv1.QueuedRunState_DELAYED); !slices.Equal(got, []string{"late", "running"}) {
				t.Errorf("some states, pages of %d: %v", size, got)
			}
		}
	})
}

// TestCancelQueuedQUE10: a run that was not started is cancelled by an event, and its worker loses
// the lease. One that was started is refused.
func TestCancelQueuedQUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for _, id := range []string{"started", "leased", "ready"} {
			n.Request(id, servertest.Named(id))
		}
		leases := n.Lease(servertest.AtMost(2))
		release(n, leases[0], runlogv1.LeaseOutcome_STARTED)
		cancel := func(id string) (*runlogv1.CancelQueuedResponse, error) {
			return n.Queues().CancelQueued(n.Context(), &runlogv1.CancelQueuedRequest{RunId: id, Reason: "wrong month"})
		}
		for _, id := range []string{"leased", "ready"} {
			got, err := cancel(id)
			if err != nil || got.RunSeq != 2 {
				t.Fatalf("cancel %s: %v, %v", id, got, err)
			}
			const payload = `{"reason":"wrong month","reasonCode":"CANCELLED_IN_QUEUE"}`
			if e := n.List(id)[1]; e.EventType != contract.RunCancelled || string(e.GetPayloadJson()) != payload {
				t.Errorf("event %v", e)
			}
			_, err = cancel(id)
			servertest.Refused(t, err, contract.ReasonRunNotQueued)
		}
		_, err := n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: "leased", Fence: leases[1].Fence})
		servertest.Refused(t, err, contract.ReasonLeaseLost)
		_, err = tryAppendFenced(n, "leased", leases[1].Fence)
		servertest.Refused(t, err, contract.ReasonLeaseLost)
		_, err = cancel("started")
		servertest.Refused(t, err, contract.ReasonRunNotQueued)
		_, err = n.Queues().Reprioritize(n.Context(), &runlogv1.ReprioritizeRequest{RunId: "started", Priority: proto.Uint32(1)})
		servertest.Refused(t, err, contract.ReasonRunNotQueued)
		if q := queue(n); q.Running != 1 || q.Depth+q.Leased != 0 {
			t.Errorf("queue %v", q)
		}
	})
}

// TestRequeueQUE8: a run that was started goes back into its queue and wakes a worker. Its last
// worker writes nothing more. A run that waits stays as it is.
func TestRequeueQUE8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("a", servertest.Named("run"))
		requeue := func() (*runlogv1.RequeueRunResponse, error) {
			return n.Queues().RequeueRun(n.Context(), &runlogv1.RequeueRunRequest{RunId: "run"})
		}
		if got, err := requeue(); err != nil || !got.Idempotent || got.Run.State != runlogv1.QueuedRunState_READY {
			t.Fatalf("a run that waits: %v, %v", got, err)
		}
		first := n.Lease()[0]
		release(n, first, runlogv1.LeaseOutcome_STARTED)
		type leased struct {
			res *runlogv1.LeaseRunsResponse
			err error
		}
		second := make(chan leased, 1)
		go func() {
			res, err := n.Queues().LeaseRuns(n.Context(), &runlogv1.LeaseRunsRequest{TenantId: "acme", Worker: "w", Max: 1, Wait: durationpb.New(time.Minute)})
			second <- leased{res, err}
		}()
		got, err := requeue()
		if err != nil || got.Idempotent || got.Run.RunId != "run" {
			t.Fatalf("a running run: %v, %v", got, err)
		}
		// The worker may have it already.
		if state := got.Run.State; state != runlogv1.QueuedRunState_READY && (state != runlogv1.QueuedRunState_LEASED || got.Run.Worker != "w") {
			t.Fatalf("a running run: %v", got)
		}
		_, err = tryAppendFenced(n, "run", first.Fence)
		servertest.Refused(t, err, contract.ReasonLeaseLost)
		l := <-second
		if l.err != nil || len(l.res.Leases) != 1 || l.res.Leases[0].Fence <= first.Fence || l.res.Leases[0].StartAttempt != 1 {
			t.Fatalf("the worker that waits: %v, %v", l.res, l.err)
		}
		if _, err := tryAppendFenced(n, "run", l.res.Leases[0].Fence); err != nil {
			t.Fatal(err)
		}
		_, err = requeue() // It has ended.
		servertest.Refused(t, err, contract.ReasonRunNotQueued)
	})
}

// TestRequeueEndsCancelledRunQUE10: a run that was released as started, and has accepted a CANCEL,
// ends when it is put back, with its RunStarted or without: no worker gets it.
func TestRequeueEndsCancelledRunQUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for _, signalType := range []string{contract.SignalCancel, contract.SignalEmergencyStop} {
			for _, begun := range []bool{false, true} {
				run := fmt.Sprint(signalType, begun)
				n.Request(run, servertest.Named(run))
				l := n.Lease()[0]
				release(n, l, runlogv1.LeaseOutcome_STARTED, func(r *runlogv1.ReleaseLeaseRequest) {
					if begun {
						r.Events = []*runlogv1.EventWrite{servertest.RunEnd(contract.RunStarted)}
					}
				})
				_, err := runlogv1.NewSignalServiceClient(n.Conn).SendSignal(n.Context(), &runlogv1.SendSignalRequest{RunId: run, SignalId: "s", SignalType: signalType})
				if err != nil {
					t.Fatal(err)
				}
				got, err := n.Queues().RequeueRun(n.Context(), &runlogv1.RequeueRunRequest{RunId: run})
				if err != nil || got.Run.State != runlogv1.QueuedRunState_ENDED {
					t.Errorf("%s: %v, %v; want ENDED", run, got, err)
				}
				events := n.List(run)
				if events[len(events)-1].EventType != contract.RunCancelled {
					t.Errorf("%s: events %v", run, events)
				}
				if leases := n.Lease(); len(leases) != 0 {
					t.Errorf("%s: leases %v", run, leases)
				}
			}
		}
	})
}

func tryAppendFenced(n *servertest.Node, runID string, fence uint64) (*runlogv1.AppendEventsResponse, error) {
	return n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: runID, Fence: &fence, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunFailed)}})
}

// TestQueueMetricsQUE10: the leader counts requests, leases and runs.
func TestQueueMetricsQUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, clock := startAhead(t)
		for i := range 3 {
			n.Request(fmt.Sprint("r", i))
		}
		n.Request("r0")
		release(n, n.Lease()[0], runlogv1.LeaseOutcome_STARTED)
		n.Metric("runlog_queue_stuck_seconds")
		clock.by.Add(int64(time.Hour))
		for name, want := range map[string]float64{
			"runlog_queue_requests_total": 4, "runlog_queue_leases_total": 1, "runlog_queue_runs": 3, "runlog_queue_start_seconds_count": 1,
			"runlog_queue_lease_expired_total": 0,
		} {
			if got := n.Metric(name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if got := n.Metric("runlog_queue_stuck_seconds"); got < 3599 {
			t.Errorf("the queue has been stuck for %v s", got)
		}
		put(n, &runlogv1.QueueSettings{Paused: proto.Bool(true)})
		if stuck, oldest := n.Metric("runlog_queue_stuck_seconds"), n.Metric("runlog_queue_oldest_ready_seconds"); stuck != 0 || oldest < 3599 {
			t.Errorf("a paused queue has been stuck for %v s; its oldest run waits for %v s", stuck, oldest)
		}
	})
}

// TestStuckQueueQUE10: a queue is stuck for as long as it has a run that may be leased and no
// worker does anything. The time in which a run was delayed does not count, and neither does a
// backlog that moves.
func TestStuckQueueQUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, clock := startAhead(t)
		stuck := func(step string, least, most float64) {
			t.Helper()
			if got := n.Metric("runlog_queue_stuck_seconds"); got < least || got > most {
				t.Errorf("%s: the queue has been stuck for %v s, want %v to %v", step, got, least, most)
			}
		}
		n.Request("late", func(r *runlogv1.RequestRunRequest) { r.NotBefore = timestamppb.New(clock.now().Add(time.Hour)) })
		stuck("a delayed run", 0, 0)
		clock.by.Add(int64(2 * time.Hour))
		for range 2 {
			n.Request(fmt.Sprint("r", clock.by.Load())) // Time passes with entries.
			stuck("a backlog that nobody was seen to leave", 0, 100)
			clock.by.Add(int64(time.Minute))
		}
		stuck("nobody leases", 60, 200)
		clock.by.Add(int64(time.Hour))
		release(n, n.Lease()[0], runlogv1.LeaseOutcome_STARTED)
		stuck("a backlog that moves", 0, 0)
		clock.by.Add(int64(time.Hour))
		stuck("nobody leases again", 3599, 3700)
	})
}

// TestTenantUsageQUE10: the usage of a tenant counts its queues, and the runs that wait and are
// leased in them, but not those of another tenant.
func TestTenantUsageQUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i, queue := range []string{"a", "a", "b", "b"} {
			n.Request(fmt.Sprint("r", i), func(r *runlogv1.RequestRunRequest) { r.Queue = queue })
		}
		n.Request("foreign", func(r *runlogv1.RequestRunRequest) { r.TenantId = "other" })
		servertest.WantEqual(t, "leases", len(n.Lease(func(r *runlogv1.LeaseRunsRequest) { r.Max = 1 })), 1)
		resp, err := n.Access().GetTenantLimits(n.Context(), &runlogv1.GetTenantLimitsRequest{TenantId: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "queues", resp.Usage.Queues, 2)
		servertest.WantEqual(t, "queued runs", resp.Usage.QueuedRuns, 3)
		servertest.WantEqual(t, "leased runs", resp.Usage.LeasedRuns, 1)
	})
}
