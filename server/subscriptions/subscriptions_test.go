package subscriptions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

type consumeClient struct {
	t      *testing.T
	stream runlogv1.SubscriptionService_ConsumeClient
}

func consume(ctx context.Context, n *servertest.Node, t *testing.T, id string, credits uint32) *consumeClient {
	t.Helper()
	stream, err := n.Subscriptions().Consume(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&runlogv1.ConsumeRequest{Credits: credits, Kind: &runlogv1.ConsumeRequest_Open{Open: &runlogv1.OpenConsume{SubscriptionId: id}}})
	if err != nil {
		t.Fatal(err)
	}
	return &consumeClient{t, stream}
}

func (c *consumeClient) recv() []*runlogv1.EventDelivery {
	c.t.Helper()
	resp, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Deliveries
}

func (c *consumeClient) ack(list ...*runlogv1.EventDelivery) {
	c.t.Helper()
	m := &runlogv1.AckDeliveries{}
	for _, d := range list {
		m.DeliveryIds = append(m.DeliveryIds, d.DeliveryId)
	}
	if err := c.stream.Send(&runlogv1.ConsumeRequest{Kind: &runlogv1.ConsumeRequest_Ack{Ack: m}, Credits: uint32(len(list))}); err != nil {
		c.t.Fatal(err)
	}
}

// TestConsumeBUS8: a consumer gets all events, of before its subscription and of after, each once,
// and those of a run in order, one after the other.
func TestConsumeBUS8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		const runs, each = 5, 40
		for r := range runs {
			n.Append(fmt.Sprintf("run-%d", r), servertest.Steps("early-", each/2)...)
		}
		n.Subscribe("all")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := consume(ctx, n, t, "all", 100)
		go func() {
			for r := range runs {
				n.Append(fmt.Sprintf("run-%d", r), servertest.Steps("late-", each/2)...)
			}
		}()
		next := map[string]uint64{}
		for total := 0; total < runs*each; {
			list := c.recv()
			for _, d := range list {
				next[d.Event.RunId]++
				if d.Event.RunSeq != next[d.Event.RunId] || d.Attempt != 1 {
					t.Fatalf("delivery %s, attempt %d; want event %d of the run", d.DeliveryId, d.Attempt, next[d.Event.RunId])
				}
			}
			c.ack(list...)
			total += len(list)
		}
		bubble.Until(t, "settled cursor", func() bool {
			resp, err := n.Subscriptions().GetSubscription(n.Context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: "all"})
			return err == nil && resp.Subscription.AcknowledgedTotal == runs*each && resp.Subscription.Lag.Events == 0 && resp.Subscription.Lag.InFlight == 0
		})
	})
}

// TestWebhookBUS7: a webhook gets each event as a signed CloudEvent, those of a run in order. One
// that it refuses is delivered again, and later parked; a redriven one arrives.
func TestWebhookBUS7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		secrets := t.TempDir()
		if err := os.MkdirAll(filepath.Join(secrets, "cluster"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(secrets, "cluster", "hook"), []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		n := servertest.Start(t, func(o *server.Options) { o.SinkSecretsDir = secrets })
		var mu sync.Mutex
		got := map[string][]string{}
		var refuse atomic.Bool
		refuse.Store(true)
		hook := servertest.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var e struct{ ID, Subject, RunSeq, Type string }
			if err := json.NewDecoder(r.Body).Decode(&e); err != nil || r.Header.Get("Webhook-Signature") == "" || !strings.HasSuffix(r.Header.Get("Webhook-Id"), "/"+e.ID) || e.ID != e.Subject+"/"+e.RunSeq {
				t.Errorf("request %v: %v", r.Header, err)
			}
			if e.Subject == "run-1" && e.RunSeq == "3" && refuse.Load() {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got[e.Subject] = append(got[e.Subject], e.RunSeq)
		}))
		n.Subscribe("hook", func(r *runlogv1.CreateSubscriptionRequest) {
			r.Delivery = &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{
				Url: hook, SecretRef: "hook", AllowPrivate: true,
			}}}
			r.Filter = &runlogv1.SubscriptionFilter{TenantId: "", Types: []string{"StepStarted"}}
			r.Retry = &runlogv1.Retry{Initial: durationpb.New(time.Millisecond), MaxAttempts: 3}
			r.OnDeadLetter = runlogv1.OnDeadLetter_HOLD_RUN
		})
		for r := range 3 {
			n.Append(fmt.Sprintf("run-%d", r), servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")), servertest.NewEvent("StepStarted", servertest.Step("b")), servertest.NewEvent("StepStarted", servertest.Step("c")))
		}
		received := func(run string) string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(got[run], " ")
		}
		shown := func() *runlogv1.Subscription {
			resp, err := n.Subscriptions().GetSubscription(n.Context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: "hook"})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Subscription
		}
		bubble.Until(t, "dead letter", func() bool { return shown().DeadLetters == 1 && shown().HeldRuns == 1 && received("run-0") == "2 3 4" })
		servertest.WantEqual(t, "events of the held run", received("run-1"), "2")
		refuse.Store(false)
		bubble.Until(t, "dead letter in the log", func() bool {
			list, err := n.Subscriptions().ListDeadLetters(n.Context(), &runlogv1.ListDeadLettersRequest{SubscriptionId: "hook"})
			return err == nil && len(list.DeadLetters) == 1 && list.DeadLetters[0].RunSeq == 3 && list.DeadLetters[0].Attempts == 3 &&
				strings.Contains(list.DeadLetters[0].Error, "500")
		})
		_, err := n.Subscriptions().RedriveDeadLetters(n.Context(), &runlogv1.RedriveDeadLettersRequest{
			SubscriptionId: "hook", Which: &runlogv1.DeadLetters{All: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		bubble.Until(t, "redriven run", func() bool { return received("run-1") == "2 3 4" && shown().DeadLetters == 0 && shown().HeldRuns == 0 })
	})
}
