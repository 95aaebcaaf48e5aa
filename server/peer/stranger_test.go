package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"runlog/testbed/await"
	"runlog/testbed/bubble"
)

// TestTLSAndPlainDoNotMix shows that both ends learn when one has certificates and the other has
// none.
func TestTLSAndPlainDoNotMix(t *testing.T) {
	ca := newAuthority(t)
	for name, tls := range map[string][2]*TLS{"TLS to plain": {ca.tls(t, "n1"), nil}, "plain to TLS": {nil, ca.tls(t, "n2")}} {
		runInBubble(t, name, func(t *bed) {
			n1, n2 := start(t, identity("n1"), tls[0], nil), serving(t, identity("n2"), tls[1], nil)
			conn, err := n1.dialTo(t.Context(), KindRaft, n2)
			refusedWith(t, conn, err, Protocol, tls[0] == nil, "with certificates, or both without")
			n2.logged(t, "a node was refused", "reason=PROTOCOL", "with certificates, or both without")
		})
	}
}

// TestStrangersAreToldApart shows that programs that are no nodes are refused at once, and that the
// log says what they speak.
func TestStrangersAreToldApart(t *testing.T) {
	ca := newAuthority(t)
	for mode, certificate := range map[string]*TLS{"plain": nil, "TLS": ca.tls(t, "n2")} {
		for name, test := range map[string]struct{ sends, says string }{
			"HTTP":            {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "speaks HTTP or gRPC"},
			"HTTP/2":          {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "speaks HTTP or gRPC"},
			"garbage":         {"\xff\xfe\xfd\xfc and more of it", "began with"},
			"damaged hello":   {damagedHello(t), map[string]string{"plain": "checksum", "TLS": "certificates"}[mode]},
			"boundless hello": {magic + "\x01hr\xff\xff", map[string]string{"plain": "65535 bytes", "TLS": "certificates"}[mode]},
		} {
			runInBubble(t, mode+"/"+name, func(t *bed) {
				n := serving(t, identity("n2"), certificate, nil)
				conn := t.dial(n.address())
				began := time.Now()
				_, _ = io.WriteString(conn, test.sends)
				answer, err := io.ReadAll(conn)
				if err != nil || len(answer) == 0 || time.Since(began) >= defaultTimeout {
					t.Errorf("after %v it read %q, %v", time.Since(began), answer, err)
				}
				n.logged(t, "a node was refused", "reason=PROTOCOL", test.says)
			})
		}
	}
}

func damagedHello(t testing.TB) string {
	b, err := message{Type: hello, Kind: KindRaft, Identity: identity("n1")}.encode()
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	return string(b)
}

// TestAnHTTPClientIsToldInItsOwnWords shows what curl and a browser say about the nodes' port.
func TestAnHTTPClientIsToldInItsOwnWords(t *testing.T) {
	inBubble(t, func(t *bed) {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, to string) (net.Conn, error) {
			return t.dialer()(ctx, to)
		}}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for mode, certificate := range map[string]*TLS{"plain": nil, "TLS": newAuthority(t).tls(t, "n2")} {
			n := serving(t, identity("n2"), certificate, nil)
			resp, err := client.Get("http://" + n.address() + "/healthz")
			if err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "--grpc-listen") {
				t.Errorf("%s: %s, %q", mode, resp.Status, text)
			}
		}
	})
}

// TestDiallingAStranger shows what a node says when an address is that of another program, such as
// a node's own port for clients.
func TestDiallingAStranger(t *testing.T) {
	ca := newAuthority(t)
	inBubble(t, func(t *bed) {
		web := &httptest.Server{Listener: t.listen(), Config: &http.Server{Handler: http.NotFoundHandler()}}
		web.Start()
		defer web.Close()
		secure := &httptest.Server{Listener: t.listen(), Config: &http.Server{Handler: http.NotFoundHandler()}}
		secure.StartTLS()
		defer secure.Close()
		l := t.listen()
		server := grpc.NewServer()
		defer server.Stop()
		go func() { _ = server.Serve(l) }()
		nobody := t.listen()
		_ = nobody.Close()

		plain, tls := start(t, identity("n1"), nil, nil), start(t, identity("n1"), ca.tls(t, "n1"), nil)
		for name, test := range map[string]struct {
			from    *node
			address string
			reason  Reason
			says    string
		}{
			"HTTP": {plain, web.Listener.Addr().String(), Protocol, "speaks HTTP or gRPC"},
			// It just ends the connection.
			"HTTP over TLS":  {plain, secure.Listener.Addr().String(), "", ""},
			"gRPC":           {plain, l.Addr().String(), Protocol, "speaks HTTP or gRPC"},
			"TLS: HTTP":      {tls, web.Listener.Addr().String(), Protocol, "speaks HTTP or gRPC"},
			"TLS: HTTPS":     {tls, secure.Listener.Addr().String(), Certificate, "another certificate authority"},
			"TLS: gRPC":      {tls, l.Addr().String(), Protocol, "speaks HTTP or gRPC"},
			"nobody answers": {plain, nobody.Addr().String(), "", ""},
		} {
			bubble.Run(t, name, func(t testing.TB) {
				conn, err := test.from.Dial(t.Context(), KindRaft, test.address, "")
				if test.reason != "" {
					refusedWith(t, conn, err, test.reason, false, test.says)
				} else if _, refused := errors.AsType[*RefusedError](err); refused || err == nil {
					t.Errorf("%v is no error of the network", err)
				}
			})
		}
	})
}

// TestSlowHandshakesBlockNobody shows that ends that say nothing, or little, more of them than
// handshakes may be under way, keep no node out, and are ended.
func TestSlowHandshakesBlockNobody(t *testing.T) {
	ca := newAuthority(t)
	for mode, tls := range map[string][2]*TLS{"plain": {}, "TLS": {ca.tls(t, "n1"), ca.tls(t, "n2")}} {
		runInBubble(t, mode, func(t *bed) {
			n1, n2 := start(t, identity("n1"), tls[0], nil), serving(t, identity("n2"), tls[1], nil)
			var slow []net.Conn
			for i := range 3 * maxHandshakes {
				conn := t.dial(n2.address())
				_, _ = io.WriteString(conn, magic[:i%len(magic)])
				slow = append(slow, conn)
			}
			began := time.Now()
			conn, err := n1.dialTo(t.Context(), KindRaft, n2)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			if took := time.Since(began); took >= defaultTimeout {
				t.Errorf("a node had to wait for %v", took)
			}
			_ = slow[0].SetReadDeadline(began.Add(4 * time.Second))
			if _, err := slow[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the first slow one is there still: %v", err)
			}
			n2.logged(t, "too many handshakes")
		})
	}
}

// TestASlowHandshakeEnds shows that one is ended by its deadline at the accepting end, and why.
func TestASlowHandshakeEnds(t *testing.T) {
	inBubble(t, func(t *bed) {
		n := serving(t, identity("n2"), nil, func(o *Options) { o.handshakeTimeout = 50 * time.Millisecond })
		conn := t.dial(n.address())
		_, _ = io.WriteString(conn, magic[:3])
		if told, err := readMessage(conn); err != nil || told.Reason != Protocol {
			t.Errorf("it was told %+v, %v", told, err)
		}
		n.logged(t, "a node was refused", "reason=PROTOCOL", "within 50ms")
	})
}

// TestARefusalOutlivesWhatWasNotRead shows that an end that has sent much can read why it was
// refused, later on. The kernel resets a connection that is closed with unread bytes.
func TestARefusalOutlivesWhatWasNotRead(t *testing.T) {
	system := &bed{TB: t}
	closed := make(chan struct{})
	n := serving(system, identity("n2"), nil, func(o *Options) { o.Listener = tellingListener{o.Listener, closed} })
	conn := system.dial(n.address())
	_, _ = conn.Write(make([]byte, 32<<10))
	n.logged(system, "a node was refused")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "the node's end of the connection", closed)
	if told, err := readMessage(conn); err != nil || told.Reason != Protocol {
		t.Errorf("it was told %+v, %v", told, err)
	}
	// A reset; some systems drop with it what was not read yet.
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
}

// tellingListener closes a channel when its one connection is closed.
type tellingListener struct {
	net.Listener
	closed chan struct{}
}

func (l tellingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tellingConn{TCPConn: conn.(*net.TCPConn), closed: l.closed}, nil
}

type tellingConn struct {
	*net.TCPConn
	closed chan struct{}
}

func (c *tellingConn) Close() error {
	err := c.TCPConn.Close()
	close(c.closed)
	return err
}

// TestAProbeOfTheSocketIsNoNews shows that a health check that connects and goes away is not warned
// of.
func TestAProbeOfTheSocketIsNoNews(t *testing.T) {
	inBubble(t, func(t *bed) {
		for _, certificate := range []*TLS{nil, newAuthority(t).tls(t, "n2")} {
			n := serving(t, identity("n2"), certificate, nil)
			_ = t.dial(n.address()).Close()
			n.logged(t, "level=DEBUG", "ended during its handshake")
			if strings.Contains(n.log.String(), "level=WARN") {
				t.Error(n.log.String())
			}
		}
	})
}

// TestTheHandshakeReadsNoByteTooMany shows that what is sent in one piece with the handshake
// arrives behind it.
func TestTheHandshakeReadsNoByteTooMany(t *testing.T) {
	inBubble(t, func(t *bed) {
		n := start(t, identity("n2"), nil, nil)
		l := n.Listener(KindRaft)
		conn := t.dial(n.address())
		b, _ := message{Type: hello, Kind: KindRaft, Identity: identity("n1")}.encode()
		last, _ := message{Type: proceed, Kind: KindRaft}.encode()
		if _, err := conn.Write(append(append(b, last...), "stream"...)); err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		got := make([]byte, 6)
		if _, err := io.ReadFull(accepted, got); err != nil || !bytes.Equal(got, []byte("stream")) {
			t.Errorf("behind the handshake came %q, %v", got, err)
		}
	})
}

// TestGRPCToTheNodesPort shows that a client of the wrong port gets an error and does not hang.
func TestGRPCToTheNodesPort(t *testing.T) {
	inBubble(t, func(t *bed) {
		n := serving(t, identity("n2"), nil, nil)
		c, err := grpc.NewClient("passthrough:"+n.address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(t.dialer()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Invoke(t.Context(), "/x/y", nil, nil); err == nil {
			t.Error("it was answered")
		}
		n.logged(t, "reason=PROTOCOL", "speaks HTTP or gRPC")
	})
}
