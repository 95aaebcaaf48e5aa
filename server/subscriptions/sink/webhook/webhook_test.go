package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/sink/secret"
	"runlog/server/subscriptions/sink/sinktest"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// open makes a sink that may reach this machine, with a timeout that no honest answer needs.
func open(t *testing.T, d *runlogv1.WebhookDelivery, opts Options) *Sink {
	t.Helper()
	d.AllowPrivate = true
	Check(d, func(field, fault string) {
		if fault != "" {
			t.Fatal(field, fault)
		}
	})
	return openUnchecked(t, d, opts)
}

func openUnchecked(t *testing.T, d *runlogv1.WebhookDelivery, opts Options) *Sink {
	t.Helper()
	s, err := New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// serve serves an endpoint on a network.
func serve(t *testing.T, n *network.Network, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := serverOn(t, n, h)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// serverOn is a server on a network, before its start.
func serverOn(t *testing.T, n *network.Network, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	l, err := n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
}

// on makes a sink post over a network.
func on(n *network.Network, opts Options) Options {
	opts.Dial = func(ctx context.Context, _, to string) (net.Conn, error) {
		return n.Dial(ctx, "127.0.0.1", to)
	}
	return opts
}

// wantError wants an error that has all of these texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q, got %v", text, err)
		}
	}
}

// secretText is a whsec_ line whose key is n times the byte.
func secretText(b byte, n int) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, n))
}

// TestStructuredBUS7 lets the SDK of CloudEvents and the verifier of Standard Webhooks judge a
// request.
func TestStructuredBUS7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		dir := t.TempDir()
		sinktest.Write(t, dir, "tenants/acme/hook", secretText('a', 32)+"\n")
		verifier, err := standardwebhooks.NewWebhook(secretText('a', 32))
		if err != nil {
			t.Fatal(err)
		}
		e := sinktest.Event("run-1", 7, `{"status":"ok"}`)
		srv := serve(t, n, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			var got event.Event
			if err := json.Unmarshal(body, &got); err != nil || got.Validate() != nil || string(got.Data()) != `{"status":"ok"}` {
				t.Errorf("%v: %s", err, body)
			}
			if err := verifier.Verify(body, r.Header); err != nil {
				t.Error(err)
			}
			for name, want := range map[string]string{
				"Content-Type": "application/cloudevents+json", "Webhook-Id": e.MessageID(), "User-Agent": "runlog", "X-Env": "prod", "Accept-Encoding": "",
			} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s: want %q, got %q", name, want, got)
				}
			}
			if r.Method != http.MethodPost || r.ContentLength != int64(len(body)) {
				t.Errorf("%s with %d bytes", r.Method, r.ContentLength)
			}
			w.WriteHeader(http.StatusAccepted)
		})
		s := open(t, &runlogv1.WebhookDelivery{Url: srv.URL, SecretRef: "hook", Headers: map[string]string{"x-env": "prod"}}, on(n, Options{Secrets: secret.Of(dir, "acme")}))
		if err := sinktest.Send(t, s, e); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBinaryBUS7: in binary mode the body is the payload, and it is what is signed.
func TestBinaryBUS7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		dir := t.TempDir()
		sinktest.Write(t, dir, "cluster/hook", secretText('a', 32))
		verifier, err := standardwebhooks.NewWebhook(secretText('a', 32))
		if err != nil {
			t.Fatal(err)
		}
		srv := serve(t, n, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if string(body) != "{\n}" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Ce-Subject") != "run%201" {
				t.Errorf("%q, %v", body, r.Header)
			}
			if err := verifier.Verify(body, r.Header); err != nil {
				t.Error(err)
			}
		})
		s := open(t, &runlogv1.WebhookDelivery{Url: srv.URL, SecretRef: "hook", Binary: true}, on(n, Options{Secrets: secret.Of(dir, "")}))
		if err := sinktest.Send(t, s, sinktest.Event("run 1", 7, "{\n}")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRotationBUS7: during a rotation receivers with either secret accept a request.
func TestRotationBUS7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		dir := t.TempDir()
		headers, body := http.Header{}, []byte(nil)
		srv := serve(t, n, func(_ http.ResponseWriter, r *http.Request) {
			headers = r.Header.Clone()
			body, _ = io.ReadAll(r.Body)
		})
		s := open(t, &runlogv1.WebhookDelivery{Url: srv.URL, SecretRef: "hook"}, on(n, Options{Secrets: secret.Of(dir, "acme")}))
		// Without its secret a request is not sent. The file is then looked for at every attempt.
		wantError(t, sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)), "webhook: cannot sign: secret tenants/acme/hook", "--sink-secrets-dir")
		if body != nil {
			t.Error("an unsigned request was sent")
		}
		sinktest.Write(t, dir, "tenants/acme/hook", secretText('n', 24)+"\r\n"+secretText('o', 64)+"\n\n")
		if err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			text string
			ok   bool
		}{{secretText('n', 24), true}, {secretText('o', 64), true}, {secretText('x', 32), false}} {
			verifier, err := standardwebhooks.NewWebhook(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.Verify(body, headers); (err == nil) != tt.ok {
				t.Errorf("%s: %v", tt.text, err)
			}
		}
	})
}

func TestSecretsBUS7(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"", "has no secret"},
		{"\n \n", "has no secret"},
		{"TOPSECRET", "line 1 does not begin with whsec_"},
		{secretText('a', 32) + "\nTOPSECRET", "line 2 does not begin with whsec_"},
		{"whsec_TOPSECRET!", "line 1 is not base64"},
		{secretText('a', 23), "line 1 has a secret of 23 bytes"},
		{secretText('a', 65), "line 1 has a secret of 65 bytes"},
		{strings.Repeat(secretText('a', 32)+"\n", 3), "line 3 is one more than the 2"},
	} {
		_, err := parseKeys([]byte(tt.text))
		wantError(t, err, tt.want)
		if err != nil && (strings.Contains(err.Error(), "TOP") || strings.Contains(err.Error(), "YWFh")) {
			t.Errorf("the error has the secret: %v", err)
		}
	}
}

// TestAnswersBUS2 has the meaning of each answer.
func TestAnswersBUS2(t *testing.T) {
	t.Parallel()
	retry := func(after string) http.Header { return http.Header{"Retry-After": {after}} }
	tests := []struct {
		name   string
		status int
		header http.Header
		body   string
		want   []string // of the error's text
		kind   error
		after  time.Duration
	}{
		{"ok", 200, nil, "fine", nil, nil, 0},
		{"no content", 204, nil, "", nil, nil, 0},
		{"299", 299, nil, "", nil, nil, 0},
		{"large body", 200, nil, strings.Repeat("x", 1<<20), nil, nil, 0},
		{"gone", 410, nil, "bye", []string{"HTTP 410: bye"}, &attempt.GoneError{Err: errors.New("")}, 0},
		{"too large", 413, nil, "", []string{"HTTP 413"}, &attempt.PermanentError{Err: errors.New("")}, 0},
		{"busy", 429, retry("7"), "slow down", []string{"HTTP 429: slow down"}, &attempt.BusyError{Err: errors.New("")}, 7 * time.Second},
		{"unavailable", 503, retry("0"), "", []string{"HTTP 503"}, &attempt.BusyError{Err: errors.New("")}, 0},
		{"busy for long", 503, retry("99999999"), "", []string{"HTTP 503"}, &attempt.BusyError{Err: errors.New("")}, 24 * time.Hour},
		{"busy until a date", 503, retry("Fri, 31 Dec 2300 23:59:59 GMT"), "", []string{"HTTP 503"}, &attempt.BusyError{Err: errors.New("")}, 24 * time.Hour},
		{"busy until a past date", 429, retry("Sun, 06 Nov 1994 08:49:37 GMT"), "", []string{"HTTP 429"}, &attempt.BusyError{Err: errors.New("")}, 0},
		{"busy without a time", 429, nil, "", []string{"HTTP 429"}, nil, 0},
		{"busy with nonsense", 503, retry("-1"), "", []string{"HTTP 503"}, nil, 0},
		{"busy for a number above 32 bits", 503, retry("4294967297"), "", []string{"HTTP 503"}, &attempt.BusyError{Err: errors.New("")}, 24 * time.Hour},
		{"busy for a number above 64 bits", 429, retry("99999999999999999999"), "", []string{"HTTP 429"}, &attempt.BusyError{Err: errors.New("")}, 24 * time.Hour},
		{"busy for 40 digits", 503, retry(strings.Repeat("9", 40)), "", []string{"HTTP 503"}, &attempt.BusyError{Err: errors.New("")}, 24 * time.Hour},
		{"retry after elsewhere", 500, retry("7"), "", []string{"HTTP 500"}, nil, 0},
		{"bad request", 400, nil, "no\x00\x1b[31m\r\nsuch\xffthing", []string{"HTTP 400: no [31m such thing"}, nil, 0},
		{"large error", 500, nil, strings.Repeat("y", 1<<20), []string{"HTTP 500: " + strings.Repeat("y", 200) + "…"}, nil, 0},
		{"redirect", 302, http.Header{"Location": {"https://evil.example:8443/path?token=1"}}, "", []string{"HTTP 302, a redirect to evil.example:8443, which is refused"}, nil, 0},
		{"redirect that keeps the method", 308, http.Header{"Location": {"/elsewhere"}}, "", []string{"HTTP 308, a redirect to 127.0.0.1"}, nil, 0},
		{"redirect to nowhere", 301, nil, "", []string{"HTTP 301, a redirect to an address that cannot be read"}, nil, 0},
		{"redirect to nonsense", 307, http.Header{"Location": {"http://%zz/"}}, "", []string{"HTTP 307"}, nil, 0},
		{"not modified", 304, nil, "", []string{"HTTP 304"}, nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				n := network.New(1)
				calls := 0
				srv := serve(t, n, func(w http.ResponseWriter, r *http.Request) {
					calls++
					for name, values := range tt.header {
						w.Header()[name] = values
					}
					w.WriteHeader(tt.status)
					io.WriteString(w, tt.body)
				})
				s := open(t, &runlogv1.WebhookDelivery{Url: srv.URL + "/?token=SECRET"}, on(n, Options{}))
				err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`))
				wantOutcome(t, err, tt.want, tt.kind, tt.after)
				if calls != 1 {
					t.Errorf("want one request, got %d", calls)
				}
			})
		})
	}
}

func wantOutcome(t *testing.T, err error, texts []string, kind error, after time.Duration) {
	t.Helper()
	if (err == nil) != (texts == nil) {
		t.Fatalf("want %q, got %v", texts, err)
	}
	wantError(t, err, texts...)
	if err != nil && (strings.Contains(err.Error(), "token") || len(err.Error()) > 400) {
		t.Errorf("the error says too much: %v", err)
	}
	if got := kindOf(err); got != kindOf(kind) {
		t.Errorf("want %q, got %q", kindOf(kind), got)
	}
	busy, isBusy := errors.AsType[*attempt.BusyError](err)
	if isBusy && busy.After != after {
		t.Errorf("want a delay of %v, got %v", after, busy.After)
	}
}

// kindOf says what a subscription makes of an error.
func kindOf(err error) string {
	switch {
	case errors.As(err, new(*attempt.GoneError)):
		return "gone"
	case errors.As(err, new(*attempt.PermanentError)):
		return "permanent"
	case errors.As(err, new(*attempt.BusyError)):
		return "busy"
	default:
		return ""
	}
}

// TestTLSBUS7: a request goes over HTTP/2 if the endpoint has it, and a certificate is checked.
func TestTLSBUS7(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	s := open(t, &runlogv1.WebhookDelivery{Url: srv.URL}, Options{tls: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}})
	if err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)); err != nil {
		t.Error(err)
	}
	s = open(t, &runlogv1.WebhookDelivery{Url: srv.URL}, Options{})
	wantError(t, sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)), "webhook: no answer", "certificate")
}

// TestConnectionsAreReusedBUS9: the pool has room for as many connections as requests under way.
func TestConnectionsAreReusedBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		const inFlight, rounds = 20, 3
		var mu sync.Mutex
		opened, waiting := 0, make(chan struct{})
		arrived := 0
		srv := serverOn(t, n, func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			wait := waiting
			if arrived++; arrived == inFlight { // All are under way at a time.
				arrived, waiting = 0, make(chan struct{})
				close(wait)
			}
			mu.Unlock()
			<-wait
		})
		srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				mu.Lock()
				opened++
				mu.Unlock()
			}
		}
		srv.Start()
		t.Cleanup(srv.Close)
		s := open(t, &runlogv1.WebhookDelivery{Url: srv.URL}, on(n, Options{MaxInFlight: inFlight}))
		for range rounds {
			var all [inFlight]*sinktest.Pending
			for i := range all {
				all[i] = sinktest.Begin(t.Context(), t, s, sinktest.Event("run", uint64(i), `{}`))
			}
			for _, p := range all {
				if err := p.Wait(); err != nil {
					t.Fatal(err)
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		// A connection may be on its way back to the pool when the next request needs one.
		if opened >= 2*inFlight {
			t.Errorf("want about %d connections for %d requests, got %d", inFlight, rounds*inFlight, opened)
		}
		if s.transport.Proxy != nil {
			t.Error("a proxy is used")
		}
	})
}

// TestCloseBUS9: Close ends what is under way, and later attempts fail.
func TestCloseBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		arrived := make(chan struct{})
		srv := serve(t, n, func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // Only then the server notices that the client is gone.
			close(arrived)
			<-r.Context().Done()
		})
		s := open(t, &runlogv1.WebhookDelivery{Url: srv.URL, Timeout: durationpb.New(time.Minute)}, on(n, Options{}))
		pending := sinktest.Begin(t.Context(), t, s, sinktest.Event("run", 1, `{}`))
		<-arrived
		s.Close()
		if err := pending.Wait(); !errors.Is(err, attempt.ErrClosed) {
			t.Errorf("want ErrClosed, got %v", err)
		}
		if err := sinktest.Send(t, s, sinktest.Event("run", 2, `{}`)); !errors.Is(err, attempt.ErrClosed) {
			t.Errorf("want ErrClosed, got %v", err)
		}
	})
}

// TestCancelBUS9: an attempt ends with its caller's context.
func TestCancelBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		srv := serve(t, n, func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		s := open(t, &runlogv1.WebhookDelivery{Url: srv.URL, Timeout: durationpb.New(time.Minute)}, on(n, Options{}))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := sinktest.Begin(ctx, t, s, sinktest.Event("run", 1, `{}`)).Wait(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want the deadline, got %v", err)
		}
	})
}

var _ sinktest.Sink = (*Sink)(nil)
