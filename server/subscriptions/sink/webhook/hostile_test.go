package webhook

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink/sinktest"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// shortTimeout is the shortest that a subscription may set.
const shortTimeout = minTimeout

// listen serves each connection by a function, which may do anything until the test ends.
func listen(t *testing.T, n *network.Network, serve func(c net.Conn, stop <-chan struct{})) string {
	t.Helper()
	l, err := n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var serving sync.WaitGroup
	t.Cleanup(func() { close(stop); l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				serve(c, stop)
			})
		}
	})
	return "http://" + l.Addr().String()
}

// readRequest reads a request with its body.
func readRequest(c net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		io.Copy(io.Discard, r.Body)
	}
}

// dribble writes a byte every ten milliseconds, as long as the other side takes them.
func dribble(c net.Conn, text string) {
	for i := range len(text) {
		if _, err := io.WriteString(c, text[i:i+1]); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestHostileEndpointsBUS9: no endpoint holds an attempt up for longer than its timeout, makes the
// server read much, or gets an event acknowledged without a whole answer.
func TestHostileEndpointsBUS9(t *testing.T) {
	t.Parallel()
	const late = "no complete answer of 127.0.0.1"
	var wholeRead atomic.Int32
	endless := func(prefix, piece string) func(net.Conn, <-chan struct{}) {
		return func(c net.Conn, _ <-chan struct{}) {
			readRequest(c)
			_, err := io.WriteString(c, prefix)
			for n := 0; err == nil && n < 64<<20; n += len(piece) { // More than sockets buffer.
				_, err = io.WriteString(c, piece)
			}
			if err == nil {
				wholeRead.Add(1)
			}
		}
	}
	tests := []struct {
		name  string
		serve func(net.Conn, <-chan struct{})
		want  string // of the error; empty: the event is taken
	}{
		{"never answers", func(c net.Conn, stop <-chan struct{}) { readRequest(c); <-stop }, late},
		{"never reads", func(_ net.Conn, stop <-chan struct{}) { <-stop }, late},
		{"answers a byte at a time", func(c net.Conn, _ <-chan struct{}) {
			readRequest(c)
			dribble(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}, late},
		{"body a byte at a time", func(c net.Conn, _ <-chan struct{}) {
			readRequest(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			dribble(c, strings.Repeat("x", 1000))
		}, late},
		{"answers 200 after the timeout", func(c net.Conn, stop <-chan struct{}) {
			readRequest(c)
			select {
			case <-time.After(5 * shortTimeout):
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			case <-stop:
			}
		}, late},
		{"interim answers for ever", endless("", "HTTP/1.1 103 Early Hints\r\n\r\n"), "no answer"},
		{"headers without end", endless("HTTP/1.1 200 OK\r\n", "X-Header: "+strings.Repeat("x", 1000)+"\r\n"), "no answer"},
		{"one header without end", endless("HTTP/1.1 200 OK\r\nX-Header: ", strings.Repeat("x", 1000)), "no answer"},
		{"body without end", endless("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 1000)), ""},
		{"error without end", endless("HTTP/1.1 500 No\r\n\r\n", strings.Repeat("x", 1000)), "HTTP 500: xxxx"},
		{"closes at once", func(net.Conn, <-chan struct{}) {}, "no answer"},
		{"closes after the request", func(c net.Conn, _ <-chan struct{}) { readRequest(c) }, "no answer"},
		{"breaks off in the body", func(c net.Conn, _ <-chan struct{}) {
			readRequest(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
		}, "the answer with HTTP 200 breaks off"},
		{"answers before the request is read", func(c net.Conn, _ <-chan struct{}) {
			r, err := http.ReadRequest(bufio.NewReader(c)) // Without its body.
			if err == nil {
				io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
				io.Copy(io.Discard, r.Body)
			}
		}, "HTTP 413: no"},
		{"speaks another protocol", func(c net.Conn, _ <-chan struct{}) {
			readRequest(c)
			io.WriteString(c, "SSH-2.0-"+strings.Repeat("\x1b[31m", 2000)+"\r\n")
		}, "no answer: "},
		{"sends two lengths", func(c net.Conn, _ <-chan struct{}) {
			readRequest(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx")
		}, "no answer"},
		{"switches protocols", func(c net.Conn, stop <-chan struct{}) {
			readRequest(c)
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			<-stop
		}, "HTTP 101"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				n := network.New(1)
				s := open(t, &runlogv1.WebhookDelivery{Url: listen(t, n, tt.serve), Timeout: durationpb.New(shortTimeout)}, on(n, Options{}))
				// The body is more than sockets buffer.
				err := sinktest.Send(t, s, sinktest.Event("run", 1, `{"a":"`+strings.Repeat("x", 8<<20)+`"}`))
				if wholeRead.Load() != 0 {
					t.Error("an answer of 64 MiB was read")
				}
				if tt.want == "" {
					if err != nil {
						t.Errorf("want no error, got %v", err)
					}
					return
				}
				wantError(t, err, tt.want)
				if err != nil && len(err.Error()) > 400 {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
			})
		})
	}
}

// TestUnreachableBUS9 has an endpoint that cannot be reached.
func TestUnreachableBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		s := open(t, &runlogv1.WebhookDelivery{Url: "http://127.0.0.1:9/secret-path"}, on(network.New(1), Options{}))
		err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`))
		wantError(t, err, "webhook: no answer", "connection refused", "check the endpoint")
		if strings.Contains(err.Error(), "secret-path") {
			t.Errorf("the error has the URL: %v", err)
		}
	})
}

// TestUnknownHostBUS9 has an endpoint whose name does not resolve.
func TestUnknownHostBUS9(t *testing.T) {
	t.Parallel()
	s := open(t, &runlogv1.WebhookDelivery{Url: "http://no-such-host.invalid/", Timeout: durationpb.New(time.Second)}, Options{})
	if err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)); err == nil {
		t.Error("want an error")
	}
}

// TestPrivateAddressesBUS7: an address is checked when it is dialled, whatever name led to it.
func TestPrivateAddressesBUS7(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(srv.Close)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(srv.URL, "http://"))
	for _, host := range []string{"localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "[::]", "127.1", "2130706433", "0x7f.1"} {
		s := openUnchecked(t, &runlogv1.WebhookDelivery{Url: "http://" + host + ":" + port}, Options{})
		err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`))
		if err == nil {
			t.Errorf("%s: want an error", host)
		}
		if host[0] == 'l' || strings.HasPrefix(host, "127.0") || host[0] == '[' {
			wantError(t, err, "webhook: the host resolves to a", "which is refused")
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests have arrived", n)
	}
	s := open(t, &runlogv1.WebhookDelivery{Url: "http://localhost:" + port}, Options{})
	if err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)); err != nil || requests.Load() != 1 {
		t.Errorf("allowed: %v, %d requests", err, requests.Load())
	}
}
