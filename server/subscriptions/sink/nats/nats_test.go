package nats

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/sink/sinktest"
	"runlog/testbed/await"
)

const testSubject = "runlog.{tenant}.{type}.{run}"

// startServer starts a server with JetStream. It returns what stops it.
func startServer(t *testing.T, opts server.Options) (address string, stop func()) {
	t.Helper()
	opts.Host, opts.JetStream, opts.NoLog, opts.NoSigs = "127.0.0.1", true, true, true
	opts.Port = -1
	if opts.StoreDir == "" {
		opts.StoreDir = t.TempDir()
	}
	s, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	stop = func() {
		s.Shutdown()
		s.WaitForShutdown()
	}
	t.Cleanup(stop)
	s.ReadyForConnections(math.MaxInt64)
	return s.ClientURL(), stop
}

// stream makes a stream, and returns it.
func stream(t *testing.T, address string, config jetstream.StreamConfig, opts ...natsgo.Option) jetstream.Stream {
	t.Helper()
	nc, err := natsgo.Connect(address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if config.Subjects == nil {
		config.Subjects = []string{"runlog.>"}
	}
	st, err := js.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func open(t *testing.T, d *runlogv1.NatsDelivery, opts Options) *Sink {
	t.Helper()
	if d.Subject == "" {
		d.Subject = testSubject
	}
	if got := faults(d); got != nil {
		t.Fatal(got)
	}
	s, err := New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q, got %v", text, err)
		}
	}
}

// wantPermanent wants to know whether an error says that no attempt can succeed.
func wantPermanent(t *testing.T, err error, want bool) {
	t.Helper()
	if _, got := errors.AsType[*attempt.PermanentError](err); got != want {
		t.Errorf("permanent: want %v, got %v: %v", want, got, err)
	}
}

// eventually repeats an attempt until it succeeds, as a subscription does.
func eventually(t *testing.T, s *Sink, e *cloudevent.Event) {
	t.Helper()
	<-s.opened
	connects := s.nc.StatusChanged(natsgo.CONNECTED)
	defer s.nc.RemoveStatusListener(connects)
	next := func(ctx context.Context) error {
		if s.nc.IsConnected() {
			return ctx.Err()
		}
		select {
		case <-connects:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	await.Until(t, "an attempt that succeeds", next, func() bool {
		err := sinktest.Send(t, s, e)
		wantPermanent(t, err, false)
		return err == nil
	})
}

// placeholder is an address of which the test says which server has it.
const placeholder = "127.0.0.1:4222"

// moving dials the server that has the placeholder now.
type moving struct{ to atomic.Pointer[string] }

func (m *moving) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	to := m.to.Load()
	if to == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(*to, "nats://"))
}

// TestPublishBUS7: a message is a CloudEvent under its run's subject, and is stored once.
func TestPublishBUS7(t *testing.T) {
	t.Parallel()
	address, _ := startServer(t, server.Options{})
	st := stream(t, address, jetstream.StreamConfig{Name: "RUNS"})
	s := open(t, &runlogv1.NatsDelivery{Url: address, Stream: "RUNS"}, Options{})
	e := sinktest.Event("run.1 *", 7, `{"n":1}`)
	for range 2 {
		if err := sinktest.Send(t, s, e); err != nil {
			t.Fatal(err)
		}
	}
	info, err := st.Info(t.Context())
	if err != nil || info.State.Msgs != 1 {
		t.Fatalf("want one message, got %+v, %v", info, err)
	}
	m, err := st.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var got event.Event
	if err := json.Unmarshal(m.Data, &got); err != nil || got.Validate() != nil || got.Subject() != "run.1 *" {
		t.Errorf("%v: %s", err, m.Data)
	}
	if m.Subject != "runlog.acme.StepCompleted.run%2E1%20%2A" || m.Header.Get("Content-Type") != "application/cloudevents+json" ||
		m.Header.Get("Nats-Msg-Id") != e.MessageID() {
		t.Errorf("got %s, %v", m.Subject, m.Header)
	}
}

// TestOneEventIDForManyENV10: events to which a producer gives one eventId are all stored, and so
// is an event of a restored cluster at the place of another one.
func TestOneEventIDForManyENV10(t *testing.T) {
	t.Parallel()
	address, _ := startServer(t, server.Options{})
	st := stream(t, address, jetstream.StreamConfig{Name: "RUNS"})
	s := open(t, &runlogv1.NatsDelivery{Url: address}, Options{})
	first := sinktest.Event("run", 1, `{}`)
	restored := sinktest.Event("run", 1, `{}`)
	restored.Cluster = "c2"
	all := []*cloudevent.Event{first, sinktest.Event("run", 2, `{}`), sinktest.Event("run", 3, `{}`), sinktest.Event("run-2", 1, `{}`), restored}
	for _, e := range all {
		e.Record.EventID = first.Record.EventID
		if err := sinktest.Send(t, s, e); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := st.Info(t.Context()); err != nil || info.State.Msgs != uint64(len(all)) {
		t.Errorf("%d events were acknowledged, the stream has %+v, %v", len(all), info, err)
	}
}

// TestManyBUS9 publishes side by side.
func TestManyBUS9(t *testing.T) {
	t.Parallel()
	address, _ := startServer(t, server.Options{})
	st := stream(t, address, jetstream.StreamConfig{Name: "RUNS", Storage: jetstream.MemoryStorage})
	s := open(t, &runlogv1.NatsDelivery{Url: address}, Options{})
	var all [500]*sinktest.Pending
	for i := range all {
		all[i] = sinktest.Begin(t.Context(), t, s, sinktest.Event("run", uint64(i), `{}`))
	}
	for _, p := range all {
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := st.Info(t.Context()); err != nil || info.State.Msgs != uint64(len(all)) {
		t.Errorf("got %+v, %v", info, err)
	}
}

// TestRefusalsBUS4 has what a server with JetStream does not store.
func TestRefusalsBUS4(t *testing.T) {
	t.Parallel()
	address, _ := startServer(t, server.Options{MaxPayload: 16 << 10})
	s := open(t, &runlogv1.NatsDelivery{Url: address}, Options{})
	small := sinktest.Event("run", 1, `{}`)
	err := sinktest.Send(t, s, small)
	wantError(t, err, `no stream of JetStream stores the subject "runlog.acme.StepCompleted.run": create one`)
	wantPermanent(t, err, false)

	stream(t, address, jetstream.StreamConfig{Name: "RUNS", MaxMsgSize: 4 << 10})
	if err := sinktest.Send(t, s, small); err != nil {
		t.Error(err)
	}
	err = sinktest.Send(t, s, sinktest.Event("run", 2, `{"a":"`+strings.Repeat("x", 4<<10)+`"}`))
	wantError(t, err, "more than the stream takes")
	wantPermanent(t, err, true)
	err = sinktest.Send(t, s, sinktest.Event("run", 3, `{"a":"`+strings.Repeat("x", 16<<10)+`"}`))
	wantError(t, err, "more than the server takes (16384): raise its max_payload")
	wantPermanent(t, err, true)

	other := open(t, &runlogv1.NatsDelivery{Url: address, Stream: "OTHER"}, Options{})
	err = sinktest.Send(t, other, small)
	wantError(t, err, `another stream than OTHER stores the subject "runlog.acme.StepCompleted.run"`)
	wantPermanent(t, err, false)

	long := open(t, &runlogv1.NatsDelivery{Url: address, Subject: "runlog." + strings.Repeat("{run}", 5)}, Options{})
	err = sinktest.Send(t, long, sinktest.Event(strings.Repeat(".", 256), 4, `{}`))
	wantError(t, err, "the subject is 3847 bytes long, at most 3000")
	wantPermanent(t, err, true)
}

// TestWithoutJetStreamBUS4 has a server that has no JetStream.
func TestWithoutJetStreamBUS4(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	s.ReadyForConnections(math.MaxInt64)
	wantError(t, sinktest.Send(t, open(t, &runlogv1.NatsDelivery{Url: s.ClientURL()}, Options{}), sinktest.Event("run", 1, `{}`)), "no stream of JetStream")
}

// TestTLSBUS7: a server without TLS gets nothing from a subscription that has it.
func TestTLSBUS7(t *testing.T) {
	t.Parallel()
	address, _ := startServer(t, server.Options{})
	stream(t, address, jetstream.StreamConfig{Name: "RUNS"})
	s := open(t, &runlogv1.NatsDelivery{Url: "tls" + strings.TrimPrefix(address, "nats")}, Options{})
	wantError(t, sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)), "nats: not connected to tls://", "secure connection not available")
}

// TestRestartBUS6: without a server attempts fail at once, and with it they succeed again.
func TestRestartBUS6(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var at moving
	address, stop := startServer(t, server.Options{StoreDir: dir})
	at.to.Store(&address)
	stream(t, address, jetstream.StreamConfig{Name: "RUNS"})
	s := open(t, &runlogv1.NatsDelivery{Url: "nats://" + placeholder}, Options{dial: at.dial})
	if err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	at.to.Store(nil)
	stop()
	err := sinktest.Send(t, s, sinktest.Event("run", 2, `{}`))
	wantError(t, err, "nats: ", placeholder)
	wantPermanent(t, err, false)
	other, _ := startServer(t, server.Options{StoreDir: dir})
	at.to.Store(&other)
	eventually(t, s, sinktest.Event("run", 2, `{}`))
}

// TestNoServerAtFirstBUS6: a sink can be opened before its server is there.
func TestNoServerAtFirstBUS6(t *testing.T) {
	t.Parallel()
	var at moving
	s := open(t, &runlogv1.NatsDelivery{Url: "nats://" + placeholder}, Options{dial: at.dial})
	wantError(t, sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)), "nats: not connected to nats://"+placeholder+": ")
	address, _ := startServer(t, server.Options{})
	stream(t, address, jetstream.StreamConfig{Name: "RUNS"})
	at.to.Store(&address)
	eventually(t, s, sinktest.Event("run", 1, `{}`))
}

// TestHostileServersBUS9: no server holds an attempt up for longer than its context, or a Close.
// All other limits are an hour: the test does not end if an attempt or a Close waits for one.
func TestHostileServersBUS9(t *testing.T) {
	t.Parallel()
	hello := func(c net.Conn) {
		io.WriteString(c, `INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}`+"\r\n")
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil || strings.HasPrefix(line, "PING") {
				io.WriteString(c, "PONG\r\n")
				return
			}
		}
	}
	for name, serve := range map[string]func(c net.Conn){
		"says nothing":          func(net.Conn) {},
		"never acknowledges":    func(c net.Conn) { hello(c); io.Copy(io.Discard, c) },
		"never reads":           hello,
		"speaks HTTP":           func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") },
		"sends without a break": func(c net.Conn) { io.Copy(c, endless{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			stop, accepted := make(chan struct{}), make(chan struct{}, 100)
			t.Cleanup(func() { close(stop); l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					select {
					case accepted <- struct{}{}:
					default:
					}
					go func() {
						defer c.Close()
						serve(c)
						<-stop
					}()
				}
			}()
			s := open(t, &runlogv1.NatsDelivery{Url: "nats://" + l.Addr().String()}, Options{attempt: time.Hour, write: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all [20]*sinktest.Pending // More than the buffers of the sockets take.
			for i := range all {
				all[i] = sinktest.Begin(ctx, t, s, sinktest.Event("run", uint64(i), `{"a":"`+strings.Repeat("x", 1<<20-1000)+`"}`))
			}
			await.Receive(t, "a connection", accepted)
			cancel()
			for _, p := range all {
				if p.Wait() == nil {
					t.Error("want an error")
				}
			}
			s.Close()
		})
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// listener subscribes in the place of a stream, and never acknowledges. It returns a channel that
// has each message's arrival.
func listener(t *testing.T, address string) <-chan struct{} {
	t.Helper()
	nc, err := natsgo.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	arrived := make(chan struct{}, 1)
	if _, err := nc.Subscribe("runlog.>", func(*natsgo.Msg) { arrived <- struct{}{} }); err != nil || nc.Flush() != nil {
		t.Fatal(err)
	}
	return arrived
}

// TestConnectionLostBUS9: an attempt ends with its connection, because no acknowledgement comes.
func TestConnectionLostBUS9(t *testing.T) {
	t.Parallel()
	address, stop := startServer(t, server.Options{})
	arrived := listener(t, address)
	s := open(t, &runlogv1.NatsDelivery{Url: address}, Options{})
	pending := sinktest.Begin(t.Context(), t, s, sinktest.Event("run", 1, `{}`))
	<-arrived
	stop()
	err := pending.Wait()
	wantError(t, err, "nats: the connection to "+address+" has ended before the acknowledgement")
	wantPermanent(t, err, false)
}

// TestCloseBUS9: Close ends what is under way, and later attempts fail.
func TestCloseBUS9(t *testing.T) {
	t.Parallel()
	address, _ := startServer(t, server.Options{})
	arrived := listener(t, address)
	s := open(t, &runlogv1.NatsDelivery{Url: address}, Options{})
	pending := sinktest.Begin(t.Context(), t, s, sinktest.Event("run", 1, `{}`))
	<-arrived
	s.Close()
	for _, err := range []error{pending.Wait(), sinktest.Send(t, s, sinktest.Event("run", 2, `{}`))} {
		if !errors.Is(err, attempt.ErrClosed) {
			t.Errorf("want ErrClosed, got %v", err)
		}
	}
}
