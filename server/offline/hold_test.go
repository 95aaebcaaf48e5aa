package offline_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/delivery"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// counter is a sink that counts what arrives.
type counter struct{ atomic.Int64 }

func (c *counter) Send(_ context.Context, _ *cloudevent.Event, done func(error)) {
	c.Add(1)
	done(nil)
}

func (*counter) Close() error { return nil }

// heldLog counts the warnings of nodes that their cluster is held.
type heldLog struct {
	slog.Handler
	warnings *atomic.Int64
}

func (heldLog) Enabled(context.Context, slog.Level) bool { return true }
func (l heldLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l heldLog) WithGroup(string) slog.Handler          { return l }

func (l heldLog) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "cluster is held") {
		l.warnings.Add(1)
	}
	return nil
}

// TestRestoredCopyHoldsBUS3QUE6: a restored copy delivers nothing to the sinks and consumers of its
// subscriptions, and starts no run, until an operator releases it: also after a restart, and after
// another node leads. Everything that shows a queue, a subscription or the cluster says so, and the
// status and a metric say since when.
func TestRestoredCopyHoldsBUS3QUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		old := servertest.Start(t, servertest.OnDisk(t))
		old.Request("r1", servertest.Named("waits"))
		subscribe := func(id string, to *runlogv1.Delivery) {
			if _, err := old.Subscriptions().CreateSubscription(old.Context(), &runlogv1.CreateSubscriptionRequest{
				SubscriptionId: id, Filter: &runlogv1.SubscriptionFilter{TenantId: "acme"}, Delivery: to,
				Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
			}); err != nil {
				t.Fatal(err)
			}
		}
		subscribe("fetched", &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{}})
		subscribe("hook", &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{Url: "https://hook.example/"}}})
		repo := servertest.NewRepository(t)
		old.BackUp(repo)
		old.Close()

		sink, log := &counter{}, heldLog{slog.DiscardHandler, new(atomic.Int64)}
		sinks := func(o *server.Options) {
			o.OpenSink, o.Logger = func() delivery.Sink { return sink }, slog.New(log)
		}
		n := servertest.HeldFrom(t, repo, sinks)
		n.Start()
		all := servertest.Nodes{n}
		ask := func(via *servertest.Node) (*runlogv1.LeaseRunsResponse, *runlogv1.PullResponse, error, error) {
			l, errLease := via.Queues().LeaseRuns(via.Context(), &runlogv1.LeaseRunsRequest{TenantId: "acme", Worker: "w", Wait: durationpb.New(10 * time.Second)})
			p, errPull := via.Subscriptions().Pull(via.Context(), &runlogv1.PullRequest{SubscriptionId: "fetched", TenantId: "acme", Wait: durationpb.New(10 * time.Second)})
			return l, p, errLease, errPull
		}
		since := int64(0)
		shows := func(held bool) {
			t.Helper()
			for _, via := range all {
				q, errQueue := via.Queues().GetQueue(via.Context(), &runlogv1.GetQueueRequest{TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod"})
				s, errSub := via.Subscriptions().GetSubscription(via.Context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: "hook", TenantId: "acme"})
				c, errStatus := via.Clusters().GetStatus(via.Context(), &runlogv1.GetStatusRequest{})
				if err := errors.Join(errQueue, errSub, errStatus); err != nil {
					t.Fatal(err)
				}
				if since == 0 {
					since = c.HeldSince.GetSeconds()
				}
				want := since
				if !held {
					want = 0
				}
				if got, metric := c.HeldSince.GetSeconds(), via.Metric("runlog_cluster_held_since_seconds"); got != want || int64(metric) != want {
					t.Errorf("%s: held since %d, by the metric %.0f; want %d", via.Opts.NodeID, got, metric, want)
				}
				if held && s.Subscription.Lag.Events == 0 {
					t.Errorf("%s: events wait, and the lag has none of them", via.Opts.NodeID)
				}
				for _, why := range []string{q.Queue.HeldReason, s.Subscription.HeldReason, c.HeldReason} {
					if strings.Contains(why, "runlog cluster release") != held {
						t.Errorf("%s: held because %q, want held: %v", via.Opts.NodeID, why, held)
					}
				}
			}
		}
		holds := func(when string) {
			t.Helper()
			all[0].MustAppend("run", servertest.Numbered(0))
			time.Sleep(time.Minute)
			for _, via := range all {
				_, _, lease, pull := ask(via)
				for _, err := range []error{lease, pull} {
					if r := servertest.Refused(t, err, contract.ReasonClusterHeld); !strings.Contains(r.Message, "runlog cluster release") {
						t.Errorf("%s: refused with %q", when, r.Message)
					}
				}
			}
			if sent := sink.Load(); sent > 0 {
				t.Errorf("%s: %d events are sent", when, sent)
			}
			shows(true)
		}
		holds("after the restore")
		n.Restart()
		holds("after a restart")
		servertest.WantEqual(t, "warnings after two starts", log.warnings.Load(), 2)
		second := &servertest.Node{T: t, Opts: servertest.DiskOptions(t)}
		sinks(&second.Opts)
		second.Opts.NodeID, second.Opts.Join, second.Opts.JoinToken = "second", []string{n.Server.Addresses().Raft}, n.JoinToken()
		second.Start()
		t.Cleanup(second.Close)
		all = append(all, second)
		bubble.Until(t, "the second node votes", func() bool {
			_, err := n.Clusters().TransferLeadership(n.Context(), &runlogv1.TransferLeadershipRequest{NodeId: "second"})
			return err == nil && all.Leader() == second
		})
		holds("with another leader")

		for again := range 2 {
			if got, err := n.Clusters().ReleaseHold(n.Context(), &runlogv1.ReleaseHoldRequest{}); err != nil || got.Released != (again == 0) {
				t.Errorf("release %d: %v, %v", again, got, err)
			}
		}
		bubble.Until(t, "the sink gets the events", func() bool { return sink.Load() > 0 })
		if l, p, errLease, errPull := ask(n); errLease != nil || errPull != nil || len(l.Leases) != 1 || len(p.Deliveries) != 1 {
			t.Errorf("after the release: %v, %v, %v, %v", l, p, errLease, errPull)
		}
		shows(false)
	})
}

// TestHeldCopyEndsNothingQUE6QUE7PRJ9: a restored copy writes nothing by itself to a run or a
// queue, whatever is due: the end of a run whose last lease has expired, that of one that has
// accepted a CANCEL, the time of a delayed run, and the alert of a pause that drains. It does once
// it is released.
func TestHeldCopyEndsNothingQUE6QUE7PRJ9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		old := servertest.Start(t, servertest.OnDisk(t))
		if _, err := old.Queues().PutQueue(old.Context(), &runlogv1.PutQueueRequest{
			TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", Settings: &runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(1)},
		}); err != nil {
			t.Fatal(err)
		}
		old.Request("r1", servertest.Named("used-up"))
		old.Request("r2", servertest.Named("cancelled"))
		old.Lease(servertest.AtMost(2))
		old.Append("cancelled", servertest.RunEnd(contract.RunStarted))
		if _, err := runlogv1.NewSignalServiceClient(old.Conn).SendSignal(old.Context(), &runlogv1.SendSignalRequest{
			RunId: "cancelled", SignalId: "stop", SignalType: contract.SignalCancel,
		}); err != nil {
			t.Fatal(err)
		}
		old.Request("r3", servertest.Named("later"), func(r *runlogv1.RequestRunRequest) { r.NotBefore = timestamppb.New(time.Now().Add(time.Minute)) })
		old.Append("drains", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")),
			servertest.NewEvent("RunPaused", servertest.Payload(`{"draining":true}`)))
		repo := servertest.NewRepository(t)
		old.BackUp(repo)
		old.Close()

		n := servertest.HeldFrom(t, repo, nil)
		n.Start()
		n.HaveKey()
		state := func() string {
			t.Helper()
			store := n.Server.Internals().Replica.Store()
			rows, err := storagetest.RowsOf(store, queue.Machine{})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d events\n%q", store.Applied().Events, rows)
		}
		before := state()
		time.Sleep(time.Hour)
		if after := state(); after != before {
			t.Errorf("the copy was\n%s\nand is, without a call,\n%s", before, after)
		}
		servertest.WantEqual(t, "alerts", n.Metric("runlog_projector_drain_timeouts_total"), 0)
		if _, err := n.Clusters().ReleaseHold(n.Context(), &runlogv1.ReleaseHoldRequest{}); err != nil {
			t.Fatal(err)
		}
		bubble.Until(t, "the runs have ended", func() bool {
			return n.Snapshot("used-up").Status == runlogv1.RunStatus_FAILED && n.Snapshot("cancelled").Status == runlogv1.RunStatus_CANCELLED
		})
		bubble.Until(t, "the alert", func() bool { return n.Metric("runlog_projector_drain_timeouts_total") == 1 })
		if l := n.Lease(); len(l) != 1 || l[0].RunId != "later" {
			t.Errorf("leased %v", l)
		}
	})
}

// TestHeldCopyHasNoStuckQueueQUE6QUE10: a queue of a restored copy is not stuck, however long its
// runs wait: no worker may lease them. Its time counts from the release on.
func TestHeldCopyHasNoStuckQueueQUE6QUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		old := servertest.Start(t, servertest.OnDisk(t))
		old.Request("r1", servertest.Named("waits"))
		repo := servertest.NewRepository(t)
		old.BackUp(repo)
		old.Close()
		n := servertest.HeldFrom(t, repo, nil)
		n.Start()
		steps := 0
		stuck := func() float64 {
			n.Metric("runlog_queue_stuck_seconds") // It counts from one read to the next.
			time.Sleep(time.Hour)
			steps++
			n.MustAppend("run", servertest.Numbered(steps)) // Time passes with entries.
			return n.Metric("runlog_queue_stuck_seconds")
		}
		servertest.WantEqual(t, "seconds while it is held", stuck(), 0)
		if _, err := n.Clusters().ReleaseHold(n.Context(), &runlogv1.ReleaseHoldRequest{}); err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "seconds at the release", n.Metric("runlog_queue_stuck_seconds"), 0)
		if got := stuck(); got < 3500 || got > 3700 {
			t.Errorf("an hour after the release, the queue has been stuck for %v s", got)
		}
	})
}
