package bench

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/bench/benchtest"
	"runlog/bench/bus"
	"runlog/bench/report"
	"runlog/bench/target"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// fakeBus is a store that delivers what is appended: each event of a tenant once.
type fakeBus struct {
	fakeNode
	late  bool // no event reaches a consumer
	alive bool // the dead sink takes events

	mu      sync.Mutex
	events  []*runlogv1.EventRecord
	grown   chan struct{} // closed when there are more
	open    int           // subscriptions
	created int
}

func newFakeBus() *fakeBus {
	return &fakeBus{fakeNode: fakeNode{benchtest.NewStore()}, grown: make(chan struct{})}
}

func (f *fakeBus) Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	res, err := f.fakeNode.Append(ctx, req)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range req.Events {
		f.events = append(f.events, &runlogv1.EventRecord{TenantId: e.TenantId, PersistedAt: timestamppb.Now()})
	}
	close(f.grown)
	f.grown = make(chan struct{})
	return res, err
}

func (f *fakeBus) Deliver(_ context.Context, req *runlogv1.CreateSubscriptionRequest) (target.Subscription, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	f.created++
	s := &fakeSubscription{f: f, tenant: req.Filter.TenantId, webhook: req.Delivery.GetWebhook()}
	if req.Start.GetNow() {
		s.next = len(f.events)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if req.Start.GetBeginning() && s.webhook != nil {
		s.posts.Go(s.post)
	}
	return s, nil
}

// Subscribe is a pull subscription from the beginning.
func (f *fakeBus) Subscribe(ctx context.Context) (target.Consumer, error) {
	s, err := f.Deliver(ctx, &runlogv1.CreateSubscriptionRequest{Filter: &runlogv1.SubscriptionFilter{}})
	if err != nil {
		return nil, err
	}
	return ownFakeConsumer{&fakeConsumer{s.(*fakeSubscription), nil}, s}, nil
}

type ownFakeConsumer struct {
	target.Consumer
	s target.Subscription
}

func (c ownFakeConsumer) Close() error { return errors.Join(c.Consumer.Close(), c.s.Close()) }

type fakeSubscription struct {
	f       *fakeBus
	tenant  string
	webhook *runlogv1.WebhookDelivery
	next    int
	ctx     context.Context
	stop    context.CancelFunc
	posts   sync.WaitGroup
}

// take waits for the next events that match.
func (s *fakeSubscription) take() (list []*runlogv1.EventRecord, err error) {
	for {
		s.f.mu.Lock()
		for ; s.next < len(s.f.events) && !s.f.late; s.next++ {
			if e := s.f.events[s.next]; s.tenant == "" || s.tenant == e.TenantId {
				list = append(list, e)
			}
		}
		grown := s.f.grown
		s.f.mu.Unlock()
		if len(list) > 0 {
			return list, nil
		}
		select {
		case <-grown:
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
}

// post hands all events to the webhook.
func (s *fakeSubscription) post() {
	for {
		list, err := s.take()
		if err != nil {
			return
		}
		for range list {
			req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.webhook.Url, bytes.NewReader([]byte("{}")))
			if err != nil {
				return
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return
			}
			_ = res.Body.Close()
		}
	}
}

func (s *fakeSubscription) Consume(told func(*runlogv1.EventRecord)) (target.Consumer, error) {
	return &fakeConsumer{s, told}, nil
}

func (s *fakeSubscription) State(context.Context) (*runlogv1.Subscription, error) {
	if s.f.alive {
		return &runlogv1.Subscription{AcknowledgedTotal: 7}, nil
	}
	return &runlogv1.Subscription{LastError: "refused"}, nil
}

func (s *fakeSubscription) Close() error {
	s.stop()
	s.posts.Wait()
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.open--
	return nil
}

type fakeConsumer struct {
	*fakeSubscription
	told func(*runlogv1.EventRecord)
}

func (c *fakeConsumer) Next(context.Context) (int, error) {
	list, err := c.take()
	for _, e := range list {
		if c.told != nil {
			c.told(e)
		}
	}
	return len(list), err
}

func (c *fakeConsumer) Close() error {
	c.stop()
	return nil
}

// OpenReceiver has the webhook's endpoint for a sink.
func (f *fakeBus) OpenReceiver(context.Context, string) (target.Receiver, error) {
	return bus.NewWebhook()
}

func runBus(t *testing.T, f *fakeBus, text string) (*report.Report, error) {
	t.Helper()
	o := brief(t, target.System{Name: "fake", Open: func(context.Context, string) (target.Target, error) { return f, nil }}, text)
	o.Calls, o.Grace = 20, 5*time.Second
	if f.late {
		o.Grace = 20 * time.Millisecond
	}
	r, err := Run(t.Context(), o)
	if f.open != 0 {
		t.Errorf("%s: %d subscriptions are left", text, f.open)
	}
	return r, err
}

// TestBusWorkloads: each workload about subscriptions counts what was delivered, and deletes its
// subscriptions. BUS-9: busy consumers get their share, and a dead sink nothing.
func TestBusWorkloads(t *testing.T) {
	t.Parallel()
	for text, subscriptions := range map[string]int{
		"consume:runs=10:stored=300": 1, "webhook:in-flight=4:runs=10:stored=300": 1, "sink-kafka:in-flight=4:runs=10:stored=300": 1,
		"delivery-lag": 1, "append-subscribed": 110, "append-dead-sink": 1,
	} {
		f := newFakeBus()
		r, err := runBus(t, f, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		last := &r.Results[len(r.Results)-1]
		if last.System != "fake" || last.Calls == 0 || last.Events == 0 || len(last.Errors) > 0 || f.created < subscriptions {
			t.Errorf("%s: %d calls, %d events, %v, %d subscriptions", text, last.Calls, last.Events, last.Errors, f.created)
		}
		if lag := last.Lag; (lag != nil) != (last.Name == report.DeliveryLag) || lag != nil && (lag.Events == 0 || lag.P99 < lag.P50 || lag.Rate == 0) {
			t.Errorf("%s: lag %+v", text, lag)
		}
		if read := last.Reads; (len(read) > 0) != (last.Name == report.Subscribed) || len(read) > 0 && read[0].Calls < busySubscriptions {
			t.Errorf("%s: delivered %+v", text, read)
		}
	}
}

// TestBusDoesNotDeliver: figures of subscriptions that do nothing are refused.
func TestBusDoesNotDeliver(t *testing.T) {
	t.Parallel()
	late, alive := newFakeBus(), newFakeBus()
	late.late, alive.alive = true, true
	if _, err := runBus(t, late, "append-subscribed"); err == nil || !strings.Contains(err.Error(), "0 of 1 events reached a consumer") {
		t.Error(err)
	}
	if _, err := runBus(t, late, "delivery-lag"); err == nil || !strings.Contains(err.Error(), "events reached a consumer within") {
		t.Error(err)
	}
	if _, err := runBus(t, alive, "append-dead-sink"); err == nil || !strings.Contains(err.Error(), "has acknowledged 7 events") {
		t.Error(err)
	}
}

// TestBusWantsSubscriptions: a system without subscriptions, or without servers for sinks, cannot
// run these workloads.
func TestBusWantsSubscriptions(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"consume", "webhook", "sink-nats", "sink-kafka", "delivery-lag", "append-subscribed", "append-dead-sink"} {
		o := brief(t, target.System{Name: "just", Open: func(context.Context, string) (target.Target, error) {
			return justTarget{fakeNode{benchtest.NewStore()}}, nil
		}}, text)
		if _, err := Run(t.Context(), o); err == nil || !errors.As(err, new(*unsupportedError)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
