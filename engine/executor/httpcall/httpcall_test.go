package httpcall_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runlog/client/transport/publicaddress"
	"runlog/engine/executor"
	"runlog/engine/executor/httpcall"
	"runlog/engine/secret"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

const hunter = "hunter2-correct-horse"

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// serveOn serves on a network in fake time.
func serveOn(t *testing.T, n *network.Network, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close() // the server listens on n
	var err error
	if s.Listener, err = n.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func run(ctx context.Context, t *testing.T, inputs map[string]any, change func(*executor.Task)) (executor.Result, *executor.Error) {
	t.Helper()
	return runOn(ctx, t, nil, inputs, change)
}

// runOn runs a task whose requests go over a network in fake time; nil: that of the machine.
func runOn(ctx context.Context, t *testing.T, n *network.Network, inputs map[string]any, change func(*executor.Task)) (executor.Result, *executor.Error) {
	t.Helper()
	o := httpcall.ClientOptions{MaxResponse: 100_000, Now: func() time.Time { return now }}
	if n != nil {
		dial := n.Dialer("worker")
		o.Dial = func(ctx context.Context, _, at string) (net.Conn, error) { return dial(ctx, at) }
	}
	client := httpcall.NewClient(o)
	t.Cleanup(client.Close)
	r, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"http": httpcall.New(client)})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := secret.NewSet(map[string]string{"env:TOKEN": hunter, "env:LINES": hunter + "\nX-Other: x"})
	if err != nil {
		t.Fatal(err)
	}
	task := executor.Task{RunID: "run", StepID: "step", LogicalAttempt: 1, EngineAttempt: 1, Executor: "http", Inputs: text, Secrets: secrets}
	if change != nil {
		change(&task)
	}
	result, err := r.Execute(ctx, task)
	fault, _ := errors.AsType[*executor.Error](err)
	if fault != nil && strings.Contains(fault.Error(), hunter) {
		t.Errorf("the error has the secret: %v", fault)
	}
	return result, fault
}

func wantFault(t *testing.T, fault *executor.Error, kind executor.Kind, code, text string) {
	t.Helper()
	if fault == nil || fault.Kind != kind || fault.Code != code || !strings.Contains(fault.Message, text) {
		t.Errorf("want %v %s with %q, got %+v", kind, code, text, fault)
	}
}

// TestRequestENG3 sends what the inputs have.
func TestRequestENG3(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		if r.Method != "PUT" || r.URL.RequestURI() != "/a?b=c" || string(body) != `{"n":1.50}` || h.Get("X-Kind") != "test" ||
			h.Get("Authorization") != "Bearer "+hunter || h.Get("Content-Type") != "application/json" || len(h.Get("Idempotency-Key")) != 32 {
			t.Errorf("got %s %s %s %v", r.Method, r.URL, body, h)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(201)
		io.WriteString(w, `{"id": 7, "token": "`+hunter+`"}`)
	})
	result, fault := run(t.Context(), t, map[string]any{
		"method": "PUT", "url": server.URL + "/a?b=c", "headers": map[string]string{"x-kind": "test"}, "body": json.RawMessage(`{"n":1.50}`),
		"secretHeaders": map[string]any{"Authorization": map[string]string{"ref": "env:TOKEN", "prefix": "Bearer "}},
	}, nil)
	if want := `{"status":201,"contentType":"application/json","body":{"id":7,"token":"[secret]"}}`; fault != nil || string(result.Output) != want {
		t.Errorf("want %s, got %s, %v", want, result.Output, fault)
	}
}

// TestBodiesENG3: an answer that is no JSON is a text.
func TestBodiesENG3(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{"": "null", "hello": `"hello"`, "{": `"{"`, "\xff": `"` + "\\ufffd" + `"`, "[1]": "[1]"} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				t.Errorf("got %s", r.Method)
			}
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, body)
		})
		result, fault := run(t.Context(), t, map[string]any{"url": server.URL}, nil)
		if want := `{"status":200,"contentType":"text/plain","body":` + want + `}`; fault != nil || string(result.Output) != want {
			t.Errorf("%q: want %s, got %s, %v", body, want, result.Output, fault)
		}
	}
}

// TestIdempotencyKeyENG3: retries of the platform have the same key, and nothing else has.
func TestIdempotencyKeyENG3(t *testing.T) {
	t.Parallel()
	var key atomic.Value
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) { key.Store(r.Header.Get("Idempotency-Key")) })
	seen := map[any]int{}
	for _, change := range []func(*executor.Task){
		nil, func(task *executor.Task) { task.EngineAttempt = 2 }, func(task *executor.Task) { task.LogicalAttempt = 2 },
		func(task *executor.Task) { task.RunID = "other" }, func(task *executor.Task) { task.StepID = "other" },
		func(task *executor.Task) { task.RunID, task.StepID = "run|4", "tep" },
	} {
		if _, fault := run(t.Context(), t, map[string]any{"url": server.URL}, change); fault != nil {
			t.Fatal(fault)
		}
		seen[key.Load()]++
	}
	if len(seen) != 5 {
		t.Errorf("want five keys, got %v", seen)
	}
}

// TestStatusENG2: which answers are retryable, and after which delay.
func TestStatusENG2(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status     int
		retryAfter string
		kind       executor.Kind
		after      time.Duration
	}{
		{400, "", executor.Permanent, 0}, {401, "7", executor.Permanent, 0}, {404, "", executor.Permanent, 0}, {409, "", executor.Permanent, 0},
		{500, "", executor.Permanent, 0}, {304, "", executor.Permanent, 0}, {429, "7", executor.Retryable, 7 * time.Second},
		{502, "", executor.Retryable, 0}, {503, now.Add(time.Minute).Format(http.TimeFormat), executor.Retryable, time.Minute},
		{503, now.Add(-time.Minute).Format(http.TimeFormat), executor.Retryable, 0}, {504, "-3", executor.Retryable, 0},
		{429, "99999999", executor.Retryable, time.Hour}, {429, "2147483649", executor.Retryable, time.Hour}, {429, "99999999999999999999", executor.Retryable, time.Hour}, {429, "soon", executor.Retryable, 0},
	} {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if tt.retryAfter != "" {
				w.Header().Set("Retry-After", tt.retryAfter)
			}
			w.WriteHeader(tt.status)
			if tt.status != 304 {
				io.WriteString(w, "no  such thing for "+hunter+"\n"+strings.Repeat("x", 245)+hunter+strings.Repeat("x", 10_000))
			}
		})
		_, fault := run(t.Context(), t, map[string]any{"url": server.URL}, nil)
		wantFault(t, fault, tt.kind, "HTTP_"+strconv.Itoa(tt.status), "answers "+strconv.Itoa(tt.status))
		if fault != nil && strings.Contains(fault.Message, hunter[:4]) {
			t.Errorf("a part of the secret is left: %v", fault)
		}
		if fault != nil && (fault.RetryAfter != tt.after || len(fault.Message) > 500) {
			t.Errorf("%d %q: want %v, got %v, %q", tt.status, tt.retryAfter, tt.after, fault.RetryAfter, fault.Message)
		}
	}
}

// TestRedirectENG7: no header with a secret goes to another server.
func TestRedirectENG7(t *testing.T) {
	t.Parallel()
	thief := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("another server has got %v", r.Header) })
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/out":
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		case "/in":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/end":
			if body, _ := io.ReadAll(r.Body); string(body) != "[1]" || r.Header.Get("X-Token") != hunter {
				t.Errorf("got %s, %v", body, r.Header)
			}
		}
	})
	headers := map[string]any{"X-Token": map[string]string{"ref": "env:TOKEN"}}
	for path, code := range map[string]string{"/out": httpcall.CodeRedirect, "/loop": httpcall.CodeRedirect, "/in": ""} {
		_, fault := run(t.Context(), t, map[string]any{"url": server.URL + path, "secretHeaders": headers, "body": []int{1}}, nil)
		if code != "" {
			wantFault(t, fault, executor.Permanent, code, "name the last one")
		} else if fault != nil {
			t.Error(fault)
		}
	}
}

// TestAddressesENG7: a request whose host resolves to a refused address is not made, and fails for
// good. A redirect leads nowhere else.
func TestAddressesENG7(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // It would resolve the names.
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/out" {
			http.Redirect(w, r, "http://"+strings.Replace(r.Host, "127.0.0.1", "localhost", 1), http.StatusFound)
		}
	})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	call := func(url string, networks ...netip.Prefix) *executor.Error {
		client := httpcall.NewClient(httpcall.ClientOptions{Control: publicaddress.Control(networks...)})
		defer client.Close()
		_, err := client.Do(t.Context(), httpcall.Request{Method: http.MethodGet, URL: url})
		fault, _ := errors.AsType[*executor.Error](err)
		return fault
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]", "127.0.0.2", "0.0.0.0", "169.254.169.254"} {
		wantFault(t, call("http://"+host+":"+port+"/debug/pprof/cmdline"), executor.Permanent, httpcall.CodeAddress, "which is refused")
	}
	here := netip.MustParsePrefix("127.0.0.1/32")
	if fault := call(server.URL, here); fault != nil {
		t.Error(fault)
	}
	wantFault(t, call("http://127.0.0.2:"+port, here), executor.Permanent, httpcall.CodeAddress, "a loopback address")
	wantFault(t, call(server.URL+"/out", here), executor.Permanent, httpcall.CodeRedirect, "")
}

// TestInputsENG7: malformed inputs are permanent errors, and headers cannot be split.
func TestInputsENG7(t *testing.T) {
	t.Parallel()
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was called") })
	ref := func(ref string) map[string]any { return map[string]any{"X-Token": map[string]string{"ref": ref}} }
	for _, inputs := range []map[string]any{
		{}, {"url": "ftp://x"}, {"url": "/relative"}, {"url": "http://user:pass@x"}, {"url": "http://%zz"}, {"url": server.URL, "method": "GET X"},
		{"url": server.URL, "headers": map[string]string{"A B": "x"}}, {"url": server.URL, "headers": map[string]string{"A": "x\r\nB: y"}},
		{"url": server.URL, "headers": map[string]string{"host": "x"}}, {"url": server.URL, "headers": map[string]string{"idempotency-key": "x"}},
		{"url": server.URL, "secretHeaders": ref("env:LINES")}, {"url": server.URL, "timeout": 3},
	} {
		_, fault := run(t.Context(), t, inputs, nil)
		wantFault(t, fault, executor.Permanent, executor.CodeInputsInvalid, "")
	}
	_, fault := run(t.Context(), t, map[string]any{"url": server.URL, "secretHeaders": ref("env:NONE")}, nil)
	wantFault(t, fault, executor.Permanent, executor.CodeSecretMissing, "secret env:NONE")
}

// TestHostileENG3: no server fills memory or holds up the worker.
func TestHostileENG3(t *testing.T) {
	t.Parallel()
	endless := func(w io.Writer) {
		for chunk := []byte(strings.Repeat("x", 32<<10)); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		kind   executor.Kind
		code   string
	}{
		"endless": {func(w http.ResponseWriter, _ *http.Request) { endless(w) }, executor.Permanent, httpcall.CodeTooLarge},
		"endless refusal": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			endless(w)
		}, executor.Permanent, httpcall.CodeTooLarge},
		"compressed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			endless(gzip.NewWriter(w))
		}, executor.Permanent, httpcall.CodeTooLarge},
		"large header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, executor.Retryable, httpcall.CodeNetwork},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "x")
		}, executor.Retryable, httpcall.CodeNetwork},
		"aborts": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, executor.Retryable, httpcall.CodeNetwork},
		"silent": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, executor.Retryable, executor.CodeTimeout},
		"slow": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, "x")
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, executor.Retryable, executor.CodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.code != executor.CodeTimeout {
				_, fault := run(t.Context(), t, map[string]any{"url": serve(t, tt.answer).URL}, nil)
				wantFault(t, fault, tt.kind, tt.code, "")
				return
			}
			bubble.Test(t, func(t *testing.T) {
				n := network.New(1)
				url := serveOn(t, n, tt.answer).URL
				_, fault := runOn(t.Context(), t, n, map[string]any{"url": url}, func(task *executor.Task) { task.Timeout = 100 * time.Millisecond })
				wantFault(t, fault, tt.kind, tt.code, "")
			})
		})
	}
	gone := serve(t, nil)
	gone.Close()
	_, fault := run(t.Context(), t, map[string]any{"url": gone.URL + "/?key=" + hunter}, nil)
	wantFault(t, fault, executor.Retryable, httpcall.CodeNetwork, "cannot get an answer")
	if strings.Contains(fault.Message, "key=") {
		t.Errorf("the error has the URL: %v", fault)
	}
	ctx, cancel := context.WithCancel(t.Context())
	silent := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, fault = run(ctx, t, map[string]any{"url": silent.URL}, nil)
	wantFault(t, fault, executor.Cancelled, executor.CodeCancelled, "")
}
