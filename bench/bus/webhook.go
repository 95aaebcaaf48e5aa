package bus

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

var _ target.Receiver = (*Webhook)(nil)

// headerTimeout bounds the headers of one request to the endpoint.
const headerTimeout = 10 * time.Second

// Webhook is an endpoint on loopback that answers 200. Each inbox has a path of its own, so that a
// late repeat for one inbox does not count for the next.
type Webhook struct {
	server  *http.Server
	address string
	served  chan error

	mu      sync.Mutex
	inboxes map[string]*webhookInbox // by path
	opened  int
}

type webhookInbox struct {
	webhook *Webhook
	path    string
	got     atomic.Int64
}

// NewWebhook serves on a free port.
func NewWebhook() (*Webhook, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &Webhook{address: l.Addr().String(), served: make(chan error, 1), inboxes: map[string]*webhookInbox{}}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	go func() { h.served <- h.server.Serve(l) }()
	return h, nil
}

// ServeHTTP counts an event once it was read whole. An unknown path gets 404.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	box := h.inboxes[r.URL.Path]
	h.mu.Unlock()
	if box == nil || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	box.got.Add(1)
}

// Open makes a path.
func (h *Webhook) Open(context.Context) (target.Inbox, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opened++
	box := &webhookInbox{webhook: h, path: "/" + strconv.Itoa(h.opened)}
	h.inboxes[box.path] = box
	return box, nil
}

// Close ends the endpoint and its connections.
func (h *Webhook) Close() error {
	err := h.server.Close()
	if served := <-h.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Delivery allows loopback.
func (b *webhookInbox) Delivery() *runlogv1.Delivery { return webhookTo(b.webhook.address + b.path) }

// webhookTo delivers to an address on this machine, which a node refuses by default.
func webhookTo(address string) *runlogv1.Delivery {
	return &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{Url: "http://" + address, AllowPrivate: true}}}
}

// Received returns how many requests were answered with 200.
func (b *webhookInbox) Received(context.Context) (int, error) { return int(b.got.Load()), nil }

// Close removes the path.
func (b *webhookInbox) Close() error {
	b.webhook.mu.Lock()
	defer b.webhook.mu.Unlock()
	delete(b.webhook.inboxes, b.path)
	return nil
}
