package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// fakeSubscriptions has a few subscriptions, and remembers what was asked.
type fakeSubscriptions struct {
	runlogv1.UnimplementedSubscriptionServiceServer

	mu    sync.Mutex
	asked proto.Message // the last request
	acked []string
	left  bool // the consumer has ended its side
}

// sample is a subscription of acme, with a lag.
func sample(id string) *runlogv1.Subscription {
	return &runlogv1.Subscription{
		SubscriptionId: id, Filter: &runlogv1.SubscriptionFilter{TenantId: "acme", Types: []string{"StepFailed", "RunFailed"}, Labels: map[string]string{"team": "a", "a": "b"}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{
			Url: "https://hooks.example.com/r", SecretRef: "billing", Headers: map[string]string{"x-team": "a"}, Timeout: durationpb.New(5 * time.Second)}}},
		Retry:       &runlogv1.Retry{Initial: durationpb.New(200 * time.Millisecond), Max: durationpb.New(5 * time.Minute), MaxAttempts: 12},
		MaxInFlight: 64, OnDeadLetter: runlogv1.OnDeadLetter_HOLD_RUN, CreatedAt: seconds(0), Position: "AQo",
		Lag:         &runlogv1.SubscriptionLag{Events: 1203, Seconds: 90.5, InFlight: 64, Retrying: 3},
		DeadLetters: 2, HeldRuns: 1, AcknowledgedTotal: 52000, LastError: "the endpoint answered 503", LastErrorAt: seconds(60),
	}
}

func pullSample(id string) *runlogv1.Subscription {
	return &runlogv1.Subscription{
		SubscriptionId: id, Filter: &runlogv1.SubscriptionFilter{}, Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
		Retry:       &runlogv1.Retry{Initial: durationpb.New(200 * time.Millisecond), Max: durationpb.New(5 * time.Minute), MaxAttempts: 12},
		MaxInFlight: 1000, OnDeadLetter: runlogv1.OnDeadLetter_CONTINUE, CreatedAt: seconds(0), Position: "AQo", Lag: &runlogv1.SubscriptionLag{Consumers: 1},
	}
}

func (f *fakeSubscriptions) note(m proto.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = m
}

func noSubscription(id string) error {
	return asStatus(&contract.Error{Reason: contract.ReasonSubscriptionNotFound, Message: "there is no subscription " + id + ". " + contract.ReasonSubscriptionNotFound.Info().Help})
}

// noPosition refuses a text that is no position, as the server does.
func noPosition(field, text string) error {
	if text != "yesteryear" {
		return nil
	}
	v := contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: "is not a position of this API"}
	return asStatus(&contract.Error{Reason: v.Reason, Message: v.Field + " " + v.Description, Violations: []contract.Violation{v}})
}

func (f *fakeSubscriptions) CreateSubscription(_ context.Context, req *runlogv1.CreateSubscriptionRequest) (*runlogv1.CreateSubscriptionResponse, error) {
	f.note(req)
	if err := noPosition("start.position", req.GetStart().GetPosition()); err != nil {
		return nil, err
	}
	s := pullSample(req.GetSubscriptionId())
	proto.Merge(s.Filter, req.GetFilter())
	s.Delivery, s.Paused = req.GetDelivery(), req.GetPaused()
	return &runlogv1.CreateSubscriptionResponse{Subscription: s, Idempotent: req.GetSubscriptionId() == "twice"}, nil
}

func (f *fakeSubscriptions) GetSubscription(_ context.Context, req *runlogv1.GetSubscriptionRequest) (*runlogv1.GetSubscriptionResponse, error) {
	f.note(req)
	switch req.GetSubscriptionId() {
	case "none":
		return nil, noSubscription("none")
	case "all":
		return &runlogv1.GetSubscriptionResponse{Subscription: pullSample("all")}, nil
	case "idle":
		s := pullSample("idle")
		s.Paused = true
		return &runlogv1.GetSubscriptionResponse{Subscription: s}, nil
	case "held", "held-paused":
		s := pullSample(req.GetSubscriptionId())
		s.Paused, s.HeldReason = req.GetSubscriptionId() == "held-paused", contract.ReasonClusterHeld.Info().Help
		return &runlogv1.GetSubscriptionResponse{Subscription: s}, nil
	}
	return &runlogv1.GetSubscriptionResponse{Subscription: sample(req.GetSubscriptionId())}, nil
}

func (f *fakeSubscriptions) ListSubscriptions(_ context.Context, req *runlogv1.ListSubscriptionsRequest) (*runlogv1.ListSubscriptionsResponse, error) {
	f.note(req)
	if req.GetPageToken() == "" {
		return &runlogv1.ListSubscriptionsResponse{Subscriptions: []*runlogv1.Subscription{pullSample("all")}, NextPageToken: "more"}, nil
	}
	paused := pullSample("lake")
	paused.Filter.TenantId, paused.Paused = "acme", true
	paused.Delivery = &runlogv1.Delivery{To: &runlogv1.Delivery_Kafka{Kafka: &runlogv1.KafkaDelivery{Brokers: []string{"k1:9092"}, Topic: "runs"}}}
	return &runlogv1.ListSubscriptionsResponse{Subscriptions: []*runlogv1.Subscription{sample("billing"), paused}}, nil
}

func (f *fakeSubscriptions) UpdateSubscription(_ context.Context, req *runlogv1.UpdateSubscriptionRequest) (*runlogv1.UpdateSubscriptionResponse, error) {
	f.note(req)
	s := sample(req.GetSubscriptionId())
	if req.Filter != nil {
		s.Filter = req.Filter
	}
	if req.Delivery != nil {
		s.Delivery = req.Delivery
	}
	if req.Retry != nil {
		s.Retry = req.Retry
	}
	if req.MaxInFlight != nil {
		s.MaxInFlight = req.GetMaxInFlight()
	}
	return &runlogv1.UpdateSubscriptionResponse{Subscription: s}, nil
}

func (f *fakeSubscriptions) PauseSubscription(_ context.Context, req *runlogv1.PauseSubscriptionRequest) (*runlogv1.PauseSubscriptionResponse, error) {
	f.note(req)
	s := sample(req.GetSubscriptionId())
	s.Paused = true
	return &runlogv1.PauseSubscriptionResponse{Subscription: s}, nil
}

func (f *fakeSubscriptions) ResumeSubscription(_ context.Context, req *runlogv1.ResumeSubscriptionRequest) (*runlogv1.ResumeSubscriptionResponse, error) {
	f.note(req)
	return &runlogv1.ResumeSubscriptionResponse{Subscription: sample(req.GetSubscriptionId())}, nil
}

func (f *fakeSubscriptions) SeekSubscription(_ context.Context, req *runlogv1.SeekSubscriptionRequest) (*runlogv1.SeekSubscriptionResponse, error) {
	f.note(req)
	if err := noPosition("to.position", req.GetTo().GetPosition()); err != nil {
		return nil, err
	}
	return &runlogv1.SeekSubscriptionResponse{Subscription: pullSample(req.GetSubscriptionId())}, nil
}

func (f *fakeSubscriptions) DeleteSubscription(_ context.Context, req *runlogv1.DeleteSubscriptionRequest) (*runlogv1.DeleteSubscriptionResponse, error) {
	if f.note(req); req.GetSubscriptionId() == "none" {
		return nil, noSubscription("none")
	}
	return &runlogv1.DeleteSubscriptionResponse{}, nil
}

func (f *fakeSubscriptions) ListDeadLetters(_ context.Context, req *runlogv1.ListDeadLettersRequest) (*runlogv1.ListDeadLettersResponse, error) {
	f.note(req)
	letter := &runlogv1.DeadLetter{DeliveryId: "2-run-7", RunId: "run-7", RunSeq: 2, EventId: "019c4a5f-0000-7000-8000-000000000002", EventType: "StepFailed",
		Attempts: 12, Error: "the endpoint answered 503", ParkedAt: seconds(90)}
	again := proto.CloneOf(letter)
	again.DeliveryId, again.RunSeq, again.Redriving = "3-run-7", 3, true
	return &runlogv1.ListDeadLettersResponse{DeadLetters: []*runlogv1.DeadLetter{letter, again}}, nil
}

func (f *fakeSubscriptions) RedriveDeadLetters(_ context.Context, req *runlogv1.RedriveDeadLettersRequest) (*runlogv1.RedriveDeadLettersResponse, error) {
	f.note(req)
	return &runlogv1.RedriveDeadLettersResponse{Redriven: 2}, nil
}

func (f *fakeSubscriptions) DiscardDeadLetters(_ context.Context, req *runlogv1.DiscardDeadLettersRequest) (*runlogv1.DiscardDeadLettersResponse, error) {
	f.note(req)
	return &runlogv1.DiscardDeadLettersResponse{Discarded: 1}, nil
}

// Consume delivers three events, as far as credits go, and then waits.
func (f *fakeSubscriptions) Consume(stream grpc.BidiStreamingServer[runlogv1.ConsumeRequest, runlogv1.ConsumeResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetOpen().GetSubscriptionId() != "planner" {
		return noSubscription(first.GetOpen().GetSubscriptionId())
	}
	res := &runlogv1.ConsumeResponse{}
	for i := range min(3, first.GetCredits()) {
		res.Deliveries = append(res.Deliveries, &runlogv1.EventDelivery{DeliveryId: fmt.Sprint("d", i), Attempt: 1, Event: &runlogv1.EventRecord{
			EventId: fmt.Sprintf("019c4a5f-0000-7000-8000-00000000000%d", i), EventType: "StepFailed", RunId: fmt.Sprint("run-", i), RunSeq: 1, PersistedAt: seconds(float64(i)),
			PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(`{"n": 1.10}`)},
		}})
	}
	if err := stream.Send(res); err != nil {
		return err
	}
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.left = true
			return nil
		}
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.acked = append(f.acked, req.GetAck().GetDeliveryIds()...)
		f.mu.Unlock()
	}
}

// TestGoldenSubscriptions shows what operators see of subscriptions (BUS-2).
func TestGoldenSubscriptions(t *testing.T) {
	t.Parallel()
	goldenLines(t, "subscriptions-show",
		"subscriptions ls", "subscriptions ls --limit 1 --tenant acme", "subscriptions ls -o json", "subscriptions ls x", "subscriptions ls --tenant=",
		"subscriptions show billing --tenant acme", "subscriptions show all", "subscriptions show all -o json", "subscriptions show none", "subscriptions show")
	goldenLines(t, "subscriptions-create",
		"subscriptions create planner --tenant acme --pull", "subscriptions create twice --pull --ack-timeout 1m --paused -o json",
		"subscriptions create b --webhook https://hooks.example.com/r --binary --header x-team=a --secret-ref billing --allow-private --webhook-timeout 3s --type StepFailed --label team=a",
		"subscriptions create n --nats nats://n1:4222 --subject runs.{tenant} --stream RUNS", "subscriptions create k --kafka k1:9092,k2:9092 --topic runs --kafka-tls --project web --plan build",
		"subscriptions create x", "subscriptions create x --pull --webhook https://a", "subscriptions create x --pull --topic t", "subscriptions create x --webhook=",
		"subscriptions create x --pull --from=", "subscriptions create x --pull --on-dead-letter stop", "subscriptions create x --pull --label team", "subscriptions create x --pull --max-attempts -1",
		"subscriptions create x --pull --max-attempts 0", "subscriptions create x --pull --max-in-flight 0", "subscriptions create x --pull --from yesteryear",
		"subscriptions create", "subscriptions create x --pull -f no-such-file", "subscriptions create x -f no-such-file", "subscriptions creat x")
	goldenLines(t, "subscriptions-steer",
		"subscriptions update billing --max-attempts 20 --type StepFailed", "subscriptions update billing --webhook https://new.example.com --max-in-flight 5 -o json",
		"subscriptions update billing", "subscriptions update billing --subject s", "subscriptions update none --plan p",
		"subscriptions pause billing", "subscriptions resume billing --tenant acme -o json", "subscriptions seek all --to beginning", "subscriptions seek all", "subscriptions seek all --to yesteryear",
		"subscriptions update billing --max-attempts 0",
		"subscriptions delete billing", "subscriptions delete billing -o json", "subscriptions delete none")
	goldenLines(t, "subscriptions-dead-letters",
		"subscriptions dead-letters ls billing", "subscriptions dead-letters ls billing --run run-7 -o json",
		"subscriptions dead-letters redrive billing --all", "subscriptions dead-letters redrive billing --delivery 2-run-7,3-run-7 -o json", "subscriptions dead-letters redrive billing",
		"subscriptions dead-letters discard billing --run run-7 --reason the\\customer\\was\\told", "subscriptions dead-letters discard billing --all",
		"subscriptions dead-letters discard billing --all --run run-7 --reason x", "subscriptions dead-letters drop billing")
	goldenLines(t, "subscriptions-help", "subscriptions --help", "subscriptions create --help", "subscriptions ls --help", "subscriptions show --help", "subscriptions update --help",
		"subscriptions pause --help", "subscriptions resume --help", "subscriptions seek --help", "subscriptions delete --help", "subscriptions dead-letters --help",
		"subscriptions dead-letters ls --help", "subscriptions dead-letters redrive --help", "subscriptions dead-letters discard --help", "consume --help")
	goldenLines(t, "consume", "consume planner --max 2", "consume planner --max 1 --no-ack -o json", "consume none", "consume", "consume idle --max 1", "consume held --max 1",
		"subscriptions show held-paused")
}

// TestSubscriptionRequests: the flags become the request that they say, and so does a file.
func TestSubscriptionRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "request.json")
	if err := os.WriteFile(file, []byte(`{"filter":{"tenantId":"acme"},"delivery":{"pull":{"ackTimeout":"60s"}},"start":{"beginning":true}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"subscriptions create s --pull --tenant acme --max-in-flight 9 --on-dead-letter hold-run --retry-max 1m --from beginning": `{"subscriptionId":"s",` +
			`"filter":{"tenantId":"acme"},"start":{"beginning":true},"delivery":{"pull":{}},"retry":{"max":"60s"},"maxInFlight":9,"onDeadLetter":"HOLD_RUN"}`,
		"subscriptions create s --pull --from 2026-02-11": `{"subscriptionId":"s","filter":{},"start":{"time":"2026-02-11T00:00:00Z"},"delivery":{"pull":{}},"retry":{}}`,
		"subscriptions create s --pull --from AQo":        `{"subscriptionId":"s","filter":{},"start":{"position":"AQo"},"delivery":{"pull":{}},"retry":{}}`,
		"subscriptions create s -f " + file:               `{"subscriptionId":"s","filter":{"tenantId":"acme"},"start":{"beginning":true},"delivery":{"pull":{"ackTimeout":"60s"}}}`,
		"subscriptions update s --label a=b --retry-initial 1s": `{"subscriptionId":"s","filter":{"tenantId":"acme","types":["StepFailed","RunFailed"],"labels":{"a":"b"}},` +
			`"retry":{"initial":"1s","max":"300s","maxAttempts":12}}`,
		"subscriptions seek s --tenant acme --to now":                       `{"subscriptionId":"s","tenantId":"acme","to":{"now":true}}`,
		"subscriptions dead-letters discard s --delivery a,b --reason gone": `{"subscriptionId":"s","which":{"deliveryIds":["a","b"]},"reason":"gone"}`,
	} {
		fake := &fakeServer{}
		s := &invocation{args: strings.Fields(line)}
		s.do(t.Context(), t, fake)
		if got := plainJSON(t, fake.fakeSubscriptions.asked); got != want {
			t.Errorf("%s:\n%s\nwant\n%s\n%s", line, got, want, s.text())
		}
	}
}

// TestConsumeAcknowledges: each event that was printed is acknowledged, also when the command is
// interrupted, and none with --no-ack.
func TestConsumeAcknowledges(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"consume planner --max 2": "[d0 d1]", "consume planner --max 2 --no-ack": "[]", "consume planner": "[d0 d1 d2]"} {
		fake := &fakeServer{}
		s := &invocation{args: strings.Fields(line)}
		f := &fake.fakeSubscriptions
		bubble.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.do(ctx, t, fake)
			}()
			if !strings.Contains(line, "--max") {
				bubble.Until(t, "three acknowledged events", func() bool {
					f.mu.Lock()
					defer f.mu.Unlock()
					return len(f.acked) == 3
				})
				cancel()
			}
			<-done
		})
		f.mu.Lock()
		if got := fmt.Sprint(f.acked); got != want || !f.left {
			t.Errorf("%s: acknowledged %s, want %s; ended %v\n%s", line, got, want, f.left, s.text())
		}
		f.mu.Unlock()
		if interrupted := !strings.Contains(line, "--max"); interrupted != (s.code == 130) {
			t.Errorf("%s: exit code %d", line, s.code)
		}
	}
}
