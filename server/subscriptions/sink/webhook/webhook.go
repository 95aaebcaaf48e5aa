package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"runlog/client/transport/publicaddress"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/sink/secret"
)

const (
	defaultTimeout  = 10 * time.Second
	defaultInFlight = 64
	idleTimeout     = 90 * time.Second
	// pingAfter is the silence after which a connection of HTTP/2 is tested, and the time that the
	// endpoint has to answer.
	pingAfter = 15 * time.Second

	maxHeaderBytes = 64 << 10 // of an answer
	maxErrorBytes  = 300      // of what the HTTP client says of a broken answer
)

// Options of a Sink.
type Options struct {
	// Secrets is where the signing secrets are.
	Secrets secret.Scope
	// MaxInFlight is how many requests the caller has under way at most. Default: 64.
	MaxInFlight int

	// Dial connects to the receiver. It takes the place of the check that its address is not
	// private. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	tls *tls.Config // of tests
}

// Sink posts events. Its methods may be called by many goroutines.
type Sink struct {
	attempts *attempt.Group
	// transport is used without an http.Client, which would follow redirects.
	transport *http.Transport
	secrets   *secret.File[[]key] // nil: requests are not signed

	url     string
	headers http.Header
	binary  bool
}

// New makes a sink of settings that Check finds no fault in. It must be closed.
func New(d *runlogv1.WebhookDelivery, opts Options) (*Sink, error) {
	u, err := url.Parse(d.Url)
	if err != nil {
		return nil, fmt.Errorf("webhook: read the address: %w", withoutURL(err))
	}
	timeout := defaultTimeout
	if d.Timeout != nil {
		timeout = d.Timeout.AsDuration()
	}
	s := &Sink{
		attempts: attempt.NewGroup(attempt.Options{Timeout: timeout, Late: func() error {
			return fmt.Errorf("webhook: no complete answer of %s within %v: check the endpoint, or raise the timeout", u.Host, timeout)
		}}),
		url: d.Url, binary: d.Binary, headers: http.Header{"User-Agent": {"runlog"}},
	}
	for name, value := range d.Headers {
		s.headers.Set(name, value)
	}
	if d.SecretRef != "" {
		s.secrets = secret.NewFile(opts.Secrets, d.SecretRef, parseKeys, time.Now)
	}
	s.transport = s.newTransport(opts, timeout, d.AllowPrivate)
	return s, nil
}

func (s *Sink) newTransport(opts Options, timeout time.Duration, allowPrivate bool) *http.Transport {
	dialer := &net.Dialer{Timeout: timeout, KeepAlive: pingAfter}
	if !allowPrivate {
		dialer.Control = publicaddress.Control()
	}
	inFlight := opts.MaxInFlight
	if inFlight <= 0 {
		inFlight = defaultInFlight
	}
	if opts.Dial == nil {
		opts.Dial = dialer.DialContext
	}
	if opts.tls == nil {
		opts.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &http.Transport{
		// A proxy would resolve the name itself, out of the dialer's sight.
		Proxy: nil,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			// A dial outlives its request: another one may use the connection.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.attempts.Context(), cancel)()
			return opts.Dial(ctx, network, address)
		},
		TLSClientConfig:        opts.tls,
		TLSHandshakeTimeout:    timeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
		MaxIdleConns:           inFlight,
		MaxIdleConnsPerHost:    inFlight,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true,
	}
}

// Send posts an event, and calls done with the outcome exactly once, on another goroutine.
func (s *Sink) Send(ctx context.Context, e *cloudevent.Event, done func(error)) {
	s.attempts.Go(ctx, func(ctx context.Context) error { return s.post(ctx, e) }, done)
}

func (s *Sink) post(ctx context.Context, e *cloudevent.Event) error {
	headers, body := s.headers.Clone(), e.Record.Payload
	if s.binary {
		cloudevent.SetHeaders(headers, e)
	} else {
		body = cloudevent.AppendStructured(nil, e)
		headers.Set("Content-Type", cloudevent.ContentType)
	}
	if err := s.sign(headers, e.MessageID(), body); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("webhook: make a request: %w", withoutURL(err))
	}
	req.Header = headers
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return requestError(err)
	}
	defer resp.Body.Close()
	return outcome(resp)
}

// sign sets the headers of Standard Webhooks. The id and the time are set also without a secret.
func (s *Sink) sign(h http.Header, id string, body []byte) error {
	at := strconv.FormatInt(time.Now().Unix(), 10)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", at)
	if s.secrets == nil {
		return nil
	}
	keys, err := s.secrets.Current()
	if err != nil {
		return fmt.Errorf("webhook: cannot sign: %w", err)
	}
	h.Set("Webhook-Signature", signatures(keys, id, at, body))
	return nil
}

// requestError makes the error of a request without an answer. It leaves the URL out, which may
// have a secret, and what the name resolves to.
func requestError(err error) error {
	if refused, ok := errors.AsType[*publicaddress.Error](err); ok {
		return fmt.Errorf("webhook: %w: use a public one, or let a caller of all tenants set allowPrivate", refused)
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("webhook: cannot resolve %s: %s: check the address", attempt.Printable(e.Name, maxErrorBytes), e.Err)
	}
	return fmt.Errorf("webhook: no answer: %s: check the endpoint", attempt.Printable(err.Error(), maxErrorBytes))
}

func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// Close ends the requests that are under way, and waits for them.
func (s *Sink) Close() error {
	s.attempts.Close()
	s.transport.CloseIdleConnections()
	return nil
}
