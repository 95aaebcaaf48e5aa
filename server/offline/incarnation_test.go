package offline_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/offline"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// place is where a caller gives back what an answer gave it to keep.
type place struct {
	name string
	// ask makes a call with what was kept, empty: without it, and returns what the answer gives.
	ask func(n *servertest.Node, kept string) (string, error)
	// target of the same call over HTTP, up to the value; empty: it has a body, or is a download.
	target string
}

const (
	eventsTarget = "/v1/runs:watch?view=EVENT"
	runTarget    = "/v1/runs/run-0:watch"
)

// places are all of them. docs/contract.md has the same list.
func places() []place {
	position := func(give func(*servertest.Node, string) error) func(*servertest.Node, string) (string, error) {
		return func(n *servertest.Node, kept string) (string, error) {
			if kept != "" {
				return "", give(n, kept)
			}
			return n.Append("run-0", servertest.Numbered(0)).Position, nil
		}
	}
	runs := func(change func(*runlogv1.WatchRunsRequest)) func(*servertest.Node, string) (string, error) {
		return func(n *servertest.Node, kept string) (string, error) {
			req := &runlogv1.WatchRunsRequest{ResumeToken: kept}
			change(req)
			return first(n.Projection.WatchRuns(n.Context(), req))
		}
	}
	return []place{
		{"afterPosition", position(func(n *servertest.Node, kept string) error {
			req := &runlogv1.WatchRunsRequest{View: runlogv1.WatchView_EVENT, AfterPosition: kept}
			_, err := first(n.Projection.WatchRuns(n.Context(), req))
			return err
		}), eventsTarget + "&afterPosition="},
		{"minPosition", position(func(n *servertest.Node, kept string) error {
			_, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{MinPosition: kept})
			return err
		}), "/v1/runs?minPosition="},
		{"minPosition of a LOCAL list", position(func(n *servertest.Node, kept string) error {
			_, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{MinPosition: kept, Consistency: runlogv1.Consistency_LOCAL})
			return err
		}), "/v1/runs?consistency=LOCAL&minPosition="},
		{"start of a subscription", position(func(n *servertest.Node, kept string) error {
			_, err := n.Subscriptions().CreateSubscription(n.Context(), &runlogv1.CreateSubscriptionRequest{
				SubscriptionId: "of-" + kept, Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Position{Position: kept}},
				Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
			})
			return err
		}), ""},
		{"seek", position(func(n *servertest.Node, kept string) error {
			_, err := n.Subscriptions().SeekSubscription(n.Context(), &runlogv1.SeekSubscriptionRequest{
				SubscriptionId: "one", To: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Position{Position: kept}},
			})
			return err
		}), ""},
		{"ack", func(n *servertest.Node, kept string) (string, error) {
			if kept == "" {
				return deliveryID(n)
			}
			_, err := n.Subscriptions().Ack(n.Context(), &runlogv1.AckRequest{SubscriptionId: "one", DeliveryIds: []string{kept}})
			return "", err
		}, ""},
		{"nack", func(n *servertest.Node, kept string) (string, error) {
			if kept == "" {
				return deliveryID(n)
			}
			_, err := n.Subscriptions().Nack(n.Context(), &runlogv1.NackRequest{SubscriptionId: "one", DeliveryIds: []string{kept}})
			return "", err
		}, ""},
		{"ack of a stream", func(n *servertest.Node, kept string) (string, error) {
			if kept == "" {
				return deliveryID(n)
			}
			return "", consumeAck(n, kept)
		}, ""},
		{"redrive", func(n *servertest.Node, kept string) (string, error) {
			if kept == "" {
				return deliveryID(n)
			}
			_, err := n.Subscriptions().RedriveDeadLetters(n.Context(), &runlogv1.RedriveDeadLettersRequest{
				SubscriptionId: "one", Which: &runlogv1.DeadLetters{DeliveryIds: []string{kept}},
			})
			return "", err
		}, ""},
		{"watch of a run", func(n *servertest.Node, kept string) (string, error) {
			return first(n.Projection.WatchRun(n.Context(), &runlogv1.WatchRunRequest{RunId: "run-0", ResumeToken: kept}))
		}, runTarget + "?resumeToken="},
		{"events of a run", func(n *servertest.Node, kept string) (string, error) {
			req := &runlogv1.WatchRunRequest{RunId: "run-0", ResumeToken: kept, View: runlogv1.WatchView_EVENT}
			return first(n.Projection.WatchRun(n.Context(), req))
		}, runTarget + "?view=EVENT&resumeToken="},
		{"watch of runs", runs(func(r *runlogv1.WatchRunsRequest) { r.IncludeExisting = r.ResumeToken == "" }), "/v1/runs:watch?resumeToken="},
		{"events of runs", runs(func(r *runlogv1.WatchRunsRequest) { r.View = runlogv1.WatchView_EVENT }), eventsTarget + "&resumeToken="},
		{"list of runs", func(n *servertest.Node, kept string) (string, error) {
			resp, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{PageSize: 1, PageToken: kept})
			return resp.GetNextPageToken(), err
		}, "/v1/runs?pageSize=1&pageToken="},
		{"audit window", func(n *servertest.Node, kept string) (string, error) {
			resp, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{PageSize: 1, PageToken: kept})
			return resp.GetNextPageToken(), err
		}, "/v1/audit/events?pageToken="},
		{"export", func(n *servertest.Node, kept string) (string, error) {
			if kept == "" {
				resp, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{PageSize: 1})
				return resp.GetNextPageToken(), err
			}
			_, err := n.TryExport(&runlogv1.ExportEventsRequest{PageToken: kept})
			return "", err
		}, ""},
		{"checkpoints", func(n *servertest.Node, kept string) (string, error) {
			resp, err := n.Audits().ListCheckpoints(n.Context(), &runlogv1.ListCheckpointsRequest{PageSize: 1, PageToken: kept})
			return resp.GetNextPageToken(), err
		}, "/v1/audit/checkpoints?pageSize=1&pageToken="},
		{"queues", func(n *servertest.Node, kept string) (string, error) {
			resp, err := n.Queues().ListQueues(n.Context(), &runlogv1.ListQueuesRequest{PageSize: 1, PageToken: kept})
			return resp.GetNextPageToken(), err
		}, "/v1/queues?pageSize=1&pageToken="},
		{"runs of a queue", func(n *servertest.Node, kept string) (string, error) {
			resp, err := n.Queues().ListQueuedRuns(n.Context(), &runlogv1.ListQueuedRunsRequest{
				TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", PageSize: 1, PageToken: kept,
			})
			return resp.GetNextPageToken(), err
		}, ""},
		{"subscriptions", func(n *servertest.Node, kept string) (string, error) {
			resp, err := n.Subscriptions().ListSubscriptions(n.Context(), &runlogv1.ListSubscriptionsRequest{PageSize: 1, PageToken: kept})
			return resp.GetNextPageToken(), err
		}, "/v1/subscriptions?pageSize=1&pageToken="},
		{"dead letters", func(n *servertest.Node, kept string) (string, error) {
			resp, err := n.Subscriptions().ListDeadLetters(n.Context(), &runlogv1.ListDeadLettersRequest{
				SubscriptionId: "one", PageSize: 1, PageToken: kept,
			})
			return resp.GetNextPageToken(), err
		}, "/v1/subscriptions/one/deadLetters?pageSize=1&pageToken="},
		{"API tokens", func(n *servertest.Node, kept string) (string, error) {
			resp, err := n.Access().ListTokens(n.Context(), &runlogv1.ListTokensRequest{PageSize: 1, PageToken: kept})
			return resp.GetNextPageToken(), err
		}, "/v1/tokens?pageSize=1&pageToken="},
	}
}

// deliveryID returns that of a dead letter.
func deliveryID(n *servertest.Node) (string, error) {
	resp, err := n.Subscriptions().ListDeadLetters(n.Context(), &runlogv1.ListDeadLettersRequest{SubscriptionId: "one", PageSize: 1})
	if err != nil || len(resp.DeadLetters) == 0 {
		return "", err
	}
	return resp.DeadLetters[0].DeliveryId, nil
}

// consumeAck acknowledges over a stream, and returns the error with which the server ends it.
func consumeAck(n *servertest.Node, id string) error {
	stream, err := n.Subscriptions().Consume(n.Context())
	if err != nil {
		return err
	}
	err = errors.Join(
		stream.Send(&runlogv1.ConsumeRequest{Kind: &runlogv1.ConsumeRequest_Open{Open: &runlogv1.OpenConsume{SubscriptionId: "one"}}}),
		stream.Send(&runlogv1.ConsumeRequest{Kind: &runlogv1.ConsumeRequest_Ack{Ack: &runlogv1.AckDeliveries{DeliveryIds: []string{id}}}}),
		stream.CloseSend())
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// first returns the token of the first message of a watch.
func first[M any, P interface {
	*M
	GetResumeToken() string
}](stream grpc.ServerStreamingClient[M], err error) (string, error) {
	if err != nil {
		return "", err
	}
	m, err := stream.Recv()
	return P(m).GetResumeToken(), err
}

// somethingToKeep gives a cluster two of everything that is listed.
func somethingToKeep(n *servertest.Node) {
	n.T.Helper()
	for i := range 2 {
		n.Append(fmt.Sprintf("run-%d", i), servertest.NewEvent("RunStarted"))
		n.Prove(fmt.Sprintf("run-%d", i), true)
		n.Request(fmt.Sprintf("in-prod-%d", i))
		n.Request(fmt.Sprintf("in-test-%d", i), func(r *runlogv1.RequestRunRequest) { r.EnvironmentId = "test" })
		if _, err := n.Access().CreateToken(n.Context(), &runlogv1.CreateTokenRequest{
			Name: fmt.Sprint(i), Tenants: []string{"acme"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER},
		}); err != nil {
			n.T.Fatal(err)
		}
	}
	n.Subscribe("one", func(r *runlogv1.CreateSubscriptionRequest) {
		r.Filter = &runlogv1.SubscriptionFilter{Types: []string{"RunStarted"}}
		r.Retry = &runlogv1.Retry{MaxAttempts: 1}
	})
	n.Subscribe("two")
	name := &runlogv1.PullRequest{SubscriptionId: "one", Max: 2, Wait: durationpb.New(10 * time.Second)}
	got, err := n.Subscriptions().Pull(n.Context(), name)
	if err != nil || len(got.Deliveries) != 2 {
		n.T.Fatalf("pulled %v, %v", got, err)
	}
	_, err = n.Subscriptions().Nack(n.Context(), &runlogv1.NackRequest{SubscriptionId: "one",
		DeliveryIds: []string{got.Deliveries[0].DeliveryId, got.Deliveries[1].DeliveryId}})
	if err != nil {
		n.T.Fatal(err)
	}
	bubble.Until(n.T, "two dead letters", func() bool {
		resp, err := n.Subscriptions().ListDeadLetters(n.Context(), &runlogv1.ListDeadLettersRequest{SubscriptionId: "one"})
		return err == nil && len(resp.DeadLetters) == 2
	})
}

// TestKeptREAD7: what a caller keeps is good as long as the incarnation of the cluster, also after
// a restart. A cluster that was restored or recovered refuses what it gave before, and another
// cluster refuses it, too, even if its own log has that place.
func TestKeptREAD7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		old := servertest.Start(t, servertest.OnDisk(t))
		somethingToKeep(old)
		repo := servertest.NewRepository(t)
		old.BackUp(repo)
		old.Append("run-0", servertest.Steps("lost", 20)...)
		var kept map[string]string
		keep := func(n *servertest.Node) {
			kept = map[string]string{}
			for _, p := range places() {
				got, err := p.ask(n, "")
				if err != nil || got == "" {
					t.Fatalf("%s gives %q, %v", p.name, got, err)
				}
				kept[p.name] = got
			}
		}
		keep(old)
		old.Restart()
		takes := func(n *servertest.Node) {
			t.Helper()
			for _, p := range places() {
				if _, err := p.ask(n, kept[p.name]); err != nil {
					t.Errorf("%s of this incarnation: %v", p.name, err)
				}
			}
		}
		takes(old)

		refuses := func(what string, n *servertest.Node) {
			t.Helper()
			for i := range 80 {
				n.Append("run-0", servertest.Steps(fmt.Sprint("new", i), 1)...)
			}
			for _, p := range places() {
				_, err := p.ask(n, kept[p.name])
				refusedOver(t, what, p, n, kept[p.name], err)
			}
			keep(n)
			takes(n)
		}
		mine := kept
		restored := servertest.RestoredFrom(t, repo, "", nil)
		restored.Start()
		refuses("restored", restored)

		another := servertest.Start(t)
		somethingToKeep(another)
		kept = mine
		refuses("another", another)

		recovered(t, old)
		kept = mine
		refuses("recovered", old)
	})
}

// TestAheadREAD7: a position that the incarnation has not reached is refused, but by a list, which
// waits for it, and not forever.
func TestAheadREAD7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxWait = time.Second })
		n.Subscribe("one")
		ahead := n.Position(1 << 40)
		for _, p := range places()[:5] {
			_, err := p.ask(n, ahead)
			want := contract.ReasonInvalidArgumentField
			if strings.HasPrefix(p.name, "minPosition") {
				want = contract.ReasonNotReached
			}
			servertest.Refused(t, err, want)
		}
	})
}

// TestWindowsOfBeforeAreNotSignedREAD7: the cluster does not sign an export that continues what it
// has counted in the incarnation before, also if the check of the token is put right.
func TestWindowsOfBeforeAreNotSignedREAD7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		n.HaveKey()
		n.Append("run", servertest.Steps("s", 3)...)
		page, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{PageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		before := rpc.NewTokenDomain("audit window", n.Incarnation())
		kind, body, ok := before.Open(page.NextPageToken)
		if !ok || kind != rpc.TokenSignedWindow {
			t.Fatalf("the token is of kind %d", kind)
		}
		recovered(t, n)
		now := rpc.NewTokenDomain("audit window", n.Incarnation())
		_, err = n.TryExport(&runlogv1.ExportEventsRequest{PageToken: now.Seal(kind, body)})
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
	})
}

// recovered makes a node the only member of its cluster, and starts it.
func recovered(t *testing.T, n *servertest.Node) {
	t.Helper()
	n.Close()
	if _, err := offline.Recover(servertest.OfflineOptions(n.Opts)); err != nil {
		t.Fatal(err)
	}
	n.Opts.Registry = nil
	n.Start()
}

// refusedOver wants that a place refuses what was kept, over gRPC and over HTTP.
func refusedOver(t *testing.T, what string, p place, n *servertest.Node, kept string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: %s takes %q", what, p.name, kept)
		return
	}
	if r := servertest.RefusalOf(t, err); r.Reason != contract.ReasonResumeTokenInvalid || r.Metadata["current"] == "" {
		t.Errorf("%s: %s refuses %q with %v", what, p.name, kept, err)
	}
	if p.target == "" {
		return
	}
	answers := []servertest.HTTPAnswer{n.HTTP("GET", p.target+url.QueryEscape(kept), "")}
	if watch, ok := strings.CutSuffix(p.target, "resumeToken="); ok {
		answers = append(answers, n.HTTP("GET", watch[:len(watch)-1], "", "Accept", "text/event-stream", "Last-Event-ID", kept))
	}
	for _, a := range answers {
		if a.Code != http.StatusBadRequest || !strings.Contains(string(a.Body), `"RESUME_TOKEN_INVALID"`) {
			t.Errorf("%s: %s over HTTP: %d %s", what, p.name, a.Code, a.Body)
		}
	}
}
