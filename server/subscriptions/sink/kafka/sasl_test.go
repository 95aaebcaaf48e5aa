package kafka

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink/secret"
	"runlog/server/subscriptions/sink/sinktest"
	testawait "runlog/testbed/await"
	"runlog/testbed/bubble"
)

// TestCredentialsBUS7 signs in by each mechanism. A password may come later.
func TestCredentialsBUS7(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(test *testing.T) {
				t := newBed(test)
				c := cluster(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "runlog", "pass:word"))
				dir := t.TempDir()
				s := open(t, &runlogv1.KafkaDelivery{Brokers: c.ListenAddrs(), SecretRef: "kafka"}, Options{Secrets: secret.Of(dir, "")})
				e := sinktest.Event("run", 1, `{}`)
				wantError(t, sinktest.Send(t, s, e), "kafka: ", "secret cluster/kafka: file does not exist")
				sinktest.Write(t, dir, "cluster/kafka", mechanism+":runlog:wrong\n")
				err := sinktest.Send(t, s, e)
				wantError(t, err, "kafka: ")
				if strings.Contains(err.Error(), "wrong") {
					t.Errorf("the error has the password: %v", err)
				}
				sinktest.Write(t, dir, "cluster/kafka", mechanism+":runlog:pass:word\n")
				// The client keeps a record for as long as an attempt takes, and fails others with
				// it.
				time.Sleep(attemptTimeout)
				if err := sinktest.Send(t, s, e); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestTLSBUS7: a broker without TLS gets nothing from a subscription that has it.
func TestTLSBUS7(t *testing.T) {
	t.Parallel()
	heard := make(chan byte, 100)
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return hearing{l, heard}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var requests atomic.Int32
	c.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		return nil, nil, false
	})
	s, err := New(&runlogv1.KafkaDelivery{Brokers: c.ListenAddrs(), Topic: topic, Tls: true}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pending := sinktest.Begin(ctx, t, s, sinktest.Event("run", 1, `{}`))
	const handshake = 22 // the type of TLS's first record
	if first := testawait.Receive(t, "what the client says", heard); first != handshake {
		t.Errorf("the client begins with %#x", first)
	}
	cancel()
	wantError(t, pending.Wait(), context.Canceled.Error())
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests came in the clear", n)
	}
}

// hearing is a listener that tells the first byte of each connection, as far as there is room.
type hearing struct {
	net.Listener
	heard chan<- byte
}

func (h hearing) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &hearingConn{Conn: c, heard: h.heard}, nil
}

type hearingConn struct {
	net.Conn
	heard chan<- byte
	begun bool
}

func (c *hearingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.begun {
		c.begun = true
		select {
		case c.heard <- b[0]:
		default:
		}
	}
	return n, err
}

func TestMechanismBUS7(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"", "is not one line"}, {"PLAIN", "is not one line"}, {"PLAIN:user", "is not one line"}, {"PLAIN::TOPSECRET", "is not one line"},
		{"PLAIN:user:", "is not one line"}, {"PLAIN:user:TOP\nSECRET", "is not one line"},
		{"plain:user:TOPSECRET", "another mechanism"}, {"TOPSECRET:user:pass", "another mechanism"}, {"GSSAPI:user:TOPSECRET", "another mechanism"},
	} {
		_, err := parseMechanism(tt.text)
		wantError(t, err, tt.want)
		if err != nil && strings.Contains(err.Error(), "TOP") {
			t.Errorf("the error has the secret: %v", err)
		}
	}
	for text, want := range map[string]string{"PLAIN:u:p": "PLAIN", "SCRAM-SHA-256:u:p:q\r\n": "SCRAM-SHA-256", "SCRAM-SHA-512:u:p\n": "SCRAM-SHA-512"} {
		if m, err := parseMechanism(text); err != nil || m.Name() != want {
			t.Errorf("%q: got %v, %v", text, m, err)
		}
	}
}
