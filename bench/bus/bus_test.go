package bus

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

// stuck is a bus whose subscriptions deliver nothing.
type stuck struct{ fault string }

func (s stuck) Deliver(context.Context, *runlogv1.CreateSubscriptionRequest) (target.Subscription, error) {
	return s, nil
}

func (s stuck) Consume(func(*runlogv1.EventRecord)) (target.Consumer, error) {
	return nil, errors.New("no consumer")
}

func (s stuck) State(context.Context) (*runlogv1.Subscription, error) {
	return &runlogv1.Subscription{LastError: s.fault}, nil
}

func (stuck) Close() error { return nil }

func post(t *testing.T, url string) int {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// TestWebhook: each inbox counts its own events, and a closed one takes none.
func TestWebhook(t *testing.T) {
	h, err := NewWebhook()
	if err != nil {
		t.Fatal(err)
	}
	a, err1 := h.Open(t.Context())
	b, err2 := h.Open(t.Context())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	url := func(i target.Inbox) string { return i.Delivery().GetWebhook().Url }
	if !a.Delivery().GetWebhook().AllowPrivate || url(a) == url(b) {
		t.Errorf("%v, %v", a.Delivery(), b.Delivery())
	}
	for range 3 {
		if code := post(t, url(a)); code != http.StatusOK {
			t.Errorf("answered %d", code)
		}
	}
	one, _ := a.Received(t.Context())
	other, _ := b.Received(t.Context())
	if one != 3 || other != 0 {
		t.Errorf("%d and %d events", one, other)
	}
	if err := a.Close(); err != nil || post(t, url(a)) != http.StatusNotFound {
		t.Errorf("a closed inbox takes events, %v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// TestSinksThatFail: an inbox that gets nothing is a failed call that names the node's reason.
func TestSinksThatFail(t *testing.T) {
	h, err := NewWebhook()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for fault, want := range map[string]string{"refused by the receiver": "0 events arrived, then: refused by the receiver", "": "deadline"} {
		c, err := (&Sinks{Bus: stuck{fault}, Receiver: h, InFlight: 4}).Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := c.Next(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", fault, err)
		}
		cancel()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNoConsumer: what was opened before a failure is closed.
func TestNoConsumer(t *testing.T) {
	if _, err := OpenLag(t.Context(), stuck{}); err == nil || !strings.Contains(err.Error(), "no consumer") {
		t.Error(err)
	}
	if _, err := OpenCrowd(t.Context(), stuck{}, 2, 2, []string{"a"}); err == nil || !strings.Contains(err.Error(), "no consumer") {
		t.Error(err)
	}
}
