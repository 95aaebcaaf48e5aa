package signals

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// timeout of the policy in tests, whatever the flag's default is.
const timeout = 30 * time.Second

// service is a policy's service on a network.
func service(t *testing.T, n *network.Network, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	l, err := n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: answer, ErrorLog: log.New(io.Discard, "", 0)}}
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// policyOf returns a policy at an address of a network.
func policyOf(t *testing.T, n *network.Network, address string) *policy {
	t.Helper()
	p := newPolicy(address, timeout, func(ctx context.Context, _, to string) (net.Conn, error) {
		return n.Dial(ctx, "127.0.0.1", to)
	})
	transport := p.client.Transport.(*http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	return p
}

// asked returns a policy whose service answers with a handler.
func asked(t *testing.T, n *network.Network, answer http.HandlerFunc) *policy {
	t.Helper()
	return policyOf(t, n, service(t, n, answer).URL+"/signals?key=secret")
}

func someSignal() *signal {
	s := &signal{runID: "run", id: "s-1", signalType: "RETRY_STEP", stepID: "load", reason: "why", parameters: json.RawMessage(`{"n":1}`), tenantID: "acme"}
	s.from(&auth.Identity{Name: "token:ops", Roles: auth.RolesOf(runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR)})
	return s
}

// TestPolicyQuestionSIG3: the policy gets the signal, its caller and the status of the run.
func TestPolicyQuestionSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var got, path string
		p := asked(t, network.New(1), func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got, path = string(body), r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")
			_, _ = io.WriteString(w, `{"allow": false, "reason": "it is late", "more": [1]}`)
		})
		v, err := p.ask(t.Context(), someSignal(), run.Waiting)
		if err != nil || v.allow || v.reason != "it is late" {
			t.Errorf("verdict %v, error %v", v, err)
		}
		want := `{"runId":"run","tenantId":"acme","signalId":"s-1","signalType":"RETRY_STEP","stepId":"load","reason":"why",` +
			`"parameters":{"n":1},"caller":{"name":"token:ops","roles":["producer","operator"]},"runStatus":"WAITING"}`
		if got != want || path != "POST /signals application/json" {
			t.Errorf("asked %s\n%s\nwant\n%s", path, got, want)
		}
	})
}

// TestPolicyFailsClosedSIG3: only an answer that says so allows or denies a signal. All others are
// errors, which do not tell the caller of the signal where the policy is.
func TestPolicyFailsClosedSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var elsewhere atomic.Int64
		n := network.New(1)
		other := service(t, n, func(w http.ResponseWriter, _ *http.Request) {
			elsewhere.Add(1)
			_, _ = io.WriteString(w, `{"allow": true}`)
		})
		released := make(chan struct{})
		defer close(released)
		text := func(text string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
		}
		status := func(code int) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(code)
				_, _ = io.WriteString(w, `{"allow": true}`)
			}
		}
		for name, answer := range map[string]http.HandlerFunc{
			"hangs": func(http.ResponseWriter, *http.Request) { <-released },
			"hangs in the body": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"allow": true`)
				w.(http.Flusher).Flush()
				<-released
			},
			"drips": func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					_, _ = io.WriteString(w, " ")
					w.(http.Flusher).Flush()
					time.Sleep(time.Millisecond)
				}
			},
			"hangs up":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"nothing":      text(""),
			"garbage":      text("<html>"),
			"no verdict":   text(`{"reason": "x"}`),
			"null verdict": text(`{"allow": null}`),
			"text verdict": text(`{"allow": "true"}`),
			"a list":       text(`[{"allow": true}]`),
			"more after":   text(`{"allow": true} {"allow": false}`),
			"large":        text(`{"allow": true, "reason": "` + strings.Repeat("x", maxPolicyAnswer) + `"}`),
			"large space":  text(`{"allow": true}` + strings.Repeat(" ", maxPolicyAnswer)),
			"created":      status(http.StatusCreated),
			"failed":       status(http.StatusInternalServerError),
			"redirect": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			},
			"moved": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, other.URL, http.StatusMovedPermanently)
			},
		} {
			p := asked(t, n, answer)
			v, err := p.ask(t.Context(), someSignal(), run.Running)
			if v != nil || err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: verdict %v, error %v", name, v, err)
			}
			if late := name == "hangs" || name == "hangs in the body" || name == "drips"; err != nil && late != (err.Error() == "no answer within 30s") {
				t.Errorf("%s: error %v", name, err)
			}
			p.client.CloseIdleConnections()
		}
		if followed := elsewhere.Load(); followed != 0 {
			t.Errorf("%d redirects were followed", followed)
		}
		if v, err := policyOf(t, n, "http://127.0.0.1:1").ask(t.Context(), someSignal(), run.Running); v != nil || err == nil {
			t.Errorf("no service: verdict %v, error %v", v, err)
		}
	})
}

// TestPolicyCallsAreBoundedSIG3: a policy that hangs has a bounded number of calls, and a call that
// waits for its turn ends in the same time.
func TestPolicyCallsAreBoundedSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		var now, most atomic.Int64
		p := asked(t, network.New(1), func(w http.ResponseWriter, _ *http.Request) {
			for n := now.Add(1); ; {
				if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
					break
				}
			}
			<-released
			now.Add(-1)
			_, _ = io.WriteString(w, `{"allow": true}`)
		})
		var calls sync.WaitGroup
		var failed atomic.Int64
		for range 3 * maxPolicyCalls {
			calls.Go(func() {
				if _, err := p.ask(t.Context(), someSignal(), run.Running); err != nil {
					failed.Add(1)
				}
			})
		}
		bubble.Until(t, "all calls that may be are under way", func() bool { return now.Load() == maxPolicyCalls })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := p.ask(ctx, someSignal(), run.Running); err == nil || !strings.Contains(err.Error(), "other calls") {
			t.Errorf("a call beyond the bound: %v", err)
		}
		close(released)
		calls.Wait()
		if most.Load() != maxPolicyCalls || failed.Load() != 0 {
			t.Errorf("%d calls at once, %d failed", most.Load(), failed.Load())
		}
	})
}

// TestPolicyReasonsAreShort: a long reason is cut, and stays text.
func TestPolicyReasonsAreShort(t *testing.T) {
	t.Parallel()
	text, _ := json.Marshal(map[string]any{"allow": false, "reason": strings.Repeat("x", maxPolicyReason-1) + "é and more"})
	v, err := parseVerdict(text)
	if err != nil || v.reason != strings.Repeat("x", maxPolicyReason-1) {
		t.Errorf("verdict %v, error %v", v, err)
	}
}

// TestPolicyURLs: an address that cannot be called is refused at the start.
func TestPolicyURLs(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"http://127.0.0.1:80/x": true, "https://policy.example.com": true,
		"policy.example.com": false, "ftp://policy": false, "http://": false, "http://a b": false, "/signals": false,
	} {
		if err := CheckPolicyURL(address); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
	}
}
