package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/sink/secret"
)

const (
	attemptTimeout = 10 * time.Second
	connectTimeout = 2 * time.Second // of one server
	writeTimeout   = 5 * time.Second
	pingInterval   = 20 * time.Second
	// reconnectWait is the time between two tries of a server, plus up to as much again.
	reconnectWait = 500 * time.Millisecond

	// maxSubject leaves room in the line of a message, of which a server takes 4 KiB by default.
	maxSubject = 3000
	// maxErrorBytes bounds what an error shows of a server's text.
	maxErrorBytes = 300
)

// codeWrongStream is the error of a server whose stream is not the one that a message expects.
const codeWrongStream jetstream.ErrorCode = 10060

// Options of a Sink.
type Options struct {
	// Secrets is where the credentials are.
	Secrets secret.Scope

	// of tests
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// attempt and write bound an attempt and a write to a server.
	attempt, write time.Duration
}

// ensureDefaults sets the defaults of unset fields.
func (o *Options) ensureDefaults() {
	if o.dial == nil {
		o.dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	if o.attempt == 0 {
		o.attempt = attemptTimeout
	}
	if o.write == 0 {
		o.write = writeTimeout
	}
}

// Sink publishes events. Its methods may be called by many goroutines.
type Sink struct {
	attempts *attempt.Group
	subject  subject
	stream   string
	servers  string // for errors

	opened chan struct{} // closed when the first try to connect has ended
	// nc, js and err are set before opened is closed.
	nc  *natsgo.Conn
	js  jetstream.JetStream
	err error

	reported chan struct{} // closed by the first setFault
	mu       struct {
		sync.Mutex
		isReported bool
		fault      error // the last one that no answer has reported
		// connected ends with the connection; acknowledgements that are due then never come.
		connected  context.Context
		disconnect context.CancelFunc
	}
}

// New makes a sink of settings that Check finds no fault in, and begins to connect. It must be
// closed.
func New(d *runlogv1.NatsDelivery, opts Options) (*Sink, error) {
	opts.ensureDefaults()
	s := &Sink{subject: parseSubject(d.Subject), stream: d.Stream, servers: d.Url, opened: make(chan struct{}), reported: make(chan struct{})}
	s.attempts = attempt.NewGroup(attempt.Options{Timeout: opts.attempt, Late: s.late})
	s.mu.connected, s.mu.disconnect = context.WithCancel(s.attempts.Context())
	go func() {
		defer close(s.opened)
		s.err = s.connect(d, opts)
	}()
	return s, nil
}

func (s *Sink) connect(d *runlogv1.NatsDelivery, opts Options) (err error) {
	options := []natsgo.Option{
		natsgo.Name("runlog"),
		natsgo.RetryOnFailedConnect(true),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(reconnectWait),
		natsgo.ReconnectJitter(reconnectWait, reconnectWait),
		// Without a buffer an attempt fails while there is no connection. It is repeated anyway.
		natsgo.ReconnectBufSize(-1),
		// Credentials may be replaced: a server that refuses them may take the next ones.
		natsgo.IgnoreAuthErrorAbort(),
		natsgo.Timeout(connectTimeout),
		natsgo.FlusherTimeout(opts.write),
		natsgo.PingInterval(pingInterval),
		natsgo.SetCustomDialer(dialer{s.attempts.Context(), opts.dial}),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { s.setFault(err) }),
		natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) { s.setFault(err); s.endConnection() }),
		natsgo.ReconnectErrHandler(func(_ *natsgo.Conn, err error) { s.setFault(err) }),
		natsgo.ConnectHandler(func(*natsgo.Conn) { s.setFault(nil) }),
		natsgo.ReconnectHandler(func(*natsgo.Conn) { s.setFault(nil) }),
	}
	if strings.HasPrefix(d.Url, schemeTLS) {
		options = append(options, natsgo.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	if d.SecretRef != "" {
		options = append(options, credentials(opts.Secrets, d.SecretRef, s.setFault))
	}
	if s.nc, err = natsgo.Connect(d.Url, options...); err != nil {
		return err
	}
	if !s.nc.IsConnected() {
		select { // The library says why on another goroutine.
		case <-s.reported:
		case <-s.attempts.Context().Done():
		}
	}
	s.js, err = jetstream.New(s.nc)
	return err
}

// dialer makes connections that end with a context, also while the library waits for one.
type dialer struct {
	ctx  context.Context
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.dial(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &boundConn{c, context.AfterFunc(d.ctx, func() { c.Close() })}, nil
}

type boundConn struct {
	net.Conn
	unbind func() bool
}

func (c *boundConn) Close() error {
	c.unbind()
	return c.Conn.Close()
}

func (s *Sink) setFault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.fault = err
	if !s.mu.isReported {
		s.mu.isReported = true
		close(s.reported)
	}
}

// endConnection ends the attempts of a connection that has ended.
func (s *Sink) endConnection() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.disconnect()
	s.mu.connected, s.mu.disconnect = context.WithCancel(s.attempts.Context())
}

func (s *Sink) connection() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.connected
}

func (s *Sink) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.fault
}

// Send publishes an event, and calls done with the outcome exactly once, on another goroutine.
func (s *Sink) Send(ctx context.Context, e *cloudevent.Event, done func(error)) {
	s.attempts.Go(ctx, func(ctx context.Context) error { return s.publish(ctx, e) }, done)
}

func (s *Sink) publish(ctx context.Context, e *cloudevent.Event) error {
	select {
	case <-s.opened:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.err != nil {
		return fmt.Errorf("nats: cannot connect to %s: %w", s.servers, s.err)
	}
	connection := s.connection()
	if !s.nc.IsConnected() {
		return s.disconnected()
	}
	m := natsgo.NewMsg(s.subject.of(e.Record))
	if len(m.Subject) > maxSubject {
		return &attempt.PermanentError{Err: fmt.Errorf("nats: the subject is %d bytes long, at most %d: shorten the subject of the subscription", len(m.Subject), maxSubject)}
	}
	m.Header.Set("Content-Type", cloudevent.ContentType)
	m.Data = cloudevent.AppendStructured(nil, e)
	options := []jetstream.PublishOpt{jetstream.WithMsgID(e.MessageID())}
	if s.stream != "" {
		options = append(options, jetstream.WithExpectStream(s.stream))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(connection, cancel)()
	switch _, err := s.js.PublishMsg(ctx, m, options...); {
	case err == nil:
		return nil
	case connection.Err() != nil:
		return fmt.Errorf("nats: the connection to %s has ended before the acknowledgement%s", s.servers, s.because())
	default:
		return s.explain(err, m)
	}
}

// explain says what to do about an error of a publish.
func (s *Sink) explain(err error, m *natsgo.Msg) error {
	var api *jetstream.APIError
	isAPI := errors.As(err, &api)
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload):
		return &attempt.PermanentError{Err: fmt.Errorf("nats: the message has %d bytes and its headers, more than the server takes (%d): raise its max_payload", len(m.Data), s.nc.MaxPayload())}
	case errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return &attempt.PermanentError{Err: fmt.Errorf("nats: the message has %d bytes and its headers, more than the stream takes: raise its maximum message size", len(m.Data))}
	case isAPI && api.ErrorCode == codeWrongStream:
		return fmt.Errorf("nats: another stream than %s stores the subject %q: correct the subject or the stream", s.stream, m.Subject)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("nats: no stream of JetStream stores the subject %q: create one, or correct the subject", m.Subject)
	case !s.nc.IsConnected():
		return s.disconnected()
	default:
		return fmt.Errorf("nats: publish to the subject %q: %s", m.Subject, attempt.Printable(err.Error(), maxErrorBytes))
	}
}

func (s *Sink) disconnected() error {
	return fmt.Errorf("nats: not connected to %s%s", s.servers, s.because())
}

// late is the error of an attempt without an answer. A server refuses a subject by a message that
// belongs to no publish, so the last one of these may be the cause.
func (s *Sink) late() error {
	return fmt.Errorf("nats: no acknowledgement of %s within %v%s: check that its stream works and that the user may publish", s.servers, attemptTimeout, s.because())
}

func (s *Sink) because() string {
	if err := s.fault(); err != nil {
		return ": " + attempt.Printable(err.Error(), maxErrorBytes)
	}
	return ""
}

// Close ends the attempts that are under way, closes the connection, and waits for both.
func (s *Sink) Close() error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-s.opened
		if s.nc != nil {
			s.nc.Close()
		}
	}()
	s.attempts.Close()
	<-closed
	return nil
}
