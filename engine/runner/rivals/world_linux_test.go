package rivals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"runlog/client"
	"runlog/engine/blob"
	"runlog/engine/runner"
	"runlog/engine/workerflags"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
)

const (
	project     = "shop"
	environment = "prod"
)

// variables of a process are there before its seed, so their marks have fixed letters.
var variables = map[string]string{
	"SECRET_ACME_DB":     "acme" + inMark + "0000000000000env",
	"SECRET_UMBRELLA_DB": "umbrella" + inMark + "0000000000000env",
	"RUNLOG_TOKEN_ACME":  "acme" + inMark + "0000000000000tok",
	"RUNLOG_TOKEN_OTHER": "umbrella" + inMark + "0000000000000tok",
}

// TestMain starts this program once more, with the secrets of both tenants in the environment that
// the kernel shows in /proc: one that a process gives itself is not there.
func TestMain(m *testing.M) {
	if os.Getenv("SECRET_ACME_DB") != "" {
		shown, err := os.ReadFile("/proc/self/environ")
		if err != nil || !strings.Contains(string(shown), variables["SECRET_ACME_DB"]) {
			panic(fmt.Sprint("the kernel does not show the variables, which commands look for: ", err))
		}
		os.Exit(m.Run())
	}
	again := exec.Command(os.Args[0], os.Args[1:]...)
	again.Env, again.Stdout, again.Stderr = os.Environ(), os.Stdout, os.Stderr
	for name, value := range variables {
		again.Env = append(again.Env, name+"="+value)
	}
	err := again.Run()
	if again.ProcessState == nil {
		panic(err)
	}
	os.Exit(again.ProcessState.ExitCode())
}

// world is a node with its two tenants.
type world struct {
	t       *testing.T
	node    *servertest.Node
	check   *checker
	tenants [2]*tenant
	plans   *httptest.Server // of both tenants, each in a folder
	vault   *httptest.Server // of both tenants, each in a folder
	admin   string           // a token that no tenant has

	mu     sync.Mutex
	counts map[string]map[string]int // attacks by kind, and how they were answered
}

// tenant is one of two. Its fields do not change once it attacks.
type tenant struct {
	w     *world
	name  string
	other *tenant
	rng   *rand.Rand // of the goroutine that attacks

	tokens map[string]string // by what they may: writer, reader, worker
	names  map[string]string // of the tokens
	conns  map[string]*grpc.ClientConn
	c      *client.Client // of the writer
	runner *httptest.Server
	sink   *httptest.Server
	log    *lines
	http   *http.Client
	dir    string // plans, store and artifacts

	own  targets
	loot loot // what the other one has stolen, or knows
}

// newWorld starts a node and both tenants.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, check: newChecker(), counts: map[string]map[string]int{}}
	secrets := t.TempDir()
	w.node = servertest.Start(t, servertest.OnMachine(t), func(o *server.Options) {
		w.admin = servertest.Secured(o)
		o.SinkSecretsDir = secrets
	})
	w.plans = httptest.NewServer(http.HandlerFunc(w.servePlans))
	t.Cleanup(w.plans.Close)
	w.vault = httptest.NewServer(http.HandlerFunc(w.serveVault))
	t.Cleanup(w.vault.Close)
	root := t.TempDir()
	for i, name := range []string{"acme", "umbrella"} {
		a := &tenant{w: w, name: name, rng: rand.New(rand.NewPCG(seed, uint64(i))), dir: filepath.Join(root, name), log: &lines{},
			tokens: map[string]string{}, names: map[string]string{}, conns: map[string]*grpc.ClientConn{}, http: &http.Client{}}
		w.tenants[i] = a
		w.check.keeps(name, variables["SECRET_"+strings.ToUpper(name)+"_DB"], "variable")
		t.Cleanup(a.http.CloseIdleConnections)
	}
	w.tenants[0].other, w.tenants[1].other = w.tenants[1], w.tenants[0]
	w.check.keeps("umbrella", w.admin, "token of the admin")
	for i, a := range w.tenants {
		a.identify()
		a.serveSink(fmt.Sprint("127.0.0.", 2+i))
		a.keep(filepath.Join(root, "secrets"))
		a.serve(i)
	}
	for _, a := range w.tenants {
		a.settle()
	}
	return w
}

// mark makes a mark of the tenant.
func (a *tenant) mark() string { return newMark(a.rng, a.name) }

// identify makes the tokens of a tenant. Together they have every role but admin.
func (a *tenant) identify() {
	w := a.w
	w.t.Helper()
	for what, roles := range map[string][]runlogv1.Role_Value{
		"writer": {runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR, runlogv1.Role_ATTESTER, runlogv1.Role_DECIDER, runlogv1.Role_READER},
		"reader": {runlogv1.Role_READER, runlogv1.Role_AUDITOR},
		"worker": {runlogv1.Role_PRODUCER, runlogv1.Role_READER},
	} {
		a.names[what] = what + "-" + a.name
		token := w.node.Token(w.admin, a.names[what], []string{a.name}, roles...)
		a.tokens[what] = token
		w.check.keeps(a.name, token, "token "+what)
		conn, err := grpc.NewClient(w.node.Server.Addresses().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithPerRPCCredentials(bearer(token)))
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = conn.Close() })
		a.conns[what] = conn
	}
	a.c = a.dial(a.tokens["writer"])
	w.t.Cleanup(func() { _ = a.c.Close() })
}

// bearer sends a token, also without TLS.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

func (a *tenant) dial(token string) *client.Client {
	c, err := client.Dial(a.w.node.Server.Addresses().GRPC, client.Options{Token: token, Insecure: true, MaxAttempts: 3})
	if err != nil {
		a.w.t.Fatal(err)
	}
	return c
}

// serveSink starts the server that http steps of the tenant reach, alone at its address. What it is
// sent is what the tenant receives. It redirects to where it is asked to.
func (a *tenant) serveSink(host string) {
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		a.w.t.Fatal(err)
	}
	a.sink = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // What was sent until then counts.
		sent := fmt.Sprintf("%s %s %v %s", r.Method, r.URL, r.Header, body)
		a.w.check.receives(a.name, "any", "sink", []byte(sent))
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(rw, r, to, http.StatusFound)
			return
		}
		_, _ = fmt.Fprintf(rw, `{"said":%q}`, a.own.answer)
	}))
	_ = a.sink.Listener.Close() // It listens at the tenant's address.
	a.sink.Listener = l
	a.own.answer = a.mark()
	a.sink.Start()
	a.w.t.Cleanup(a.sink.Close)
}

// keep makes the folders and the secrets of a tenant.
func (a *tenant) keep(secrets string) {
	a.own.secret = map[string]string{"file": a.mark(), "vault": a.mark(), "env": variables["SECRET_"+strings.ToUpper(a.name)+"_DB"]}
	write := func(name, text string) error {
		return errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600))
	}
	hidden := fmt.Sprintf(`{"schemaVersion":"v1.2","planId":"hidden","planVersion":"1","steps":[{"stepId":"A","type":"noop","inputs":{"is":%q}}]}`, a.mark())
	a.own.hidden = []byte(hidden)
	err := errors.Join(
		write(filepath.Join(secrets, a.name, environment, "db"), a.own.secret["file"]),
		write(filepath.Join(a.dir, "plans", "hidden.json"), hidden),
		write(filepath.Join(a.dir, "artifacts", "report.txt"), a.mark()),
		write(filepath.Join(a.w.node.Opts.SinkSecretsDir, "tenants", a.name, "hook"), "whsec_"+strings.Repeat("QUFB", 11)),
	)
	if err != nil {
		a.w.t.Fatal(err)
	}
}

// serve starts the runner of a tenant. Its flags name the secrets of both tenants; the network is
// that of its own sink.
func (a *tenant) serve(i int) {
	t := a.w.t
	var flags workerflags.Flags
	set := flag.NewFlagSet("", flag.ContinueOnError)
	flags.Register(set)
	if err := set.Parse([]string{
		"--executors", "command,http", "--http-networks", fmt.Sprintf("127.0.0.%d/32", 2+i), "--secrets-dir", filepath.Join(filepath.Dir(a.dir), "secrets"),
		"--secret-env", "acme=SECRET_ACME_,umbrella=SECRET_UMBRELLA_",
	}); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a.log.read = func(line []byte) { a.w.check.receives(a.name, "any", "log of the runner", line) }
	getenv := func(name string) string {
		switch name {
		case "VAULT_ADDR":
			return a.w.vault.URL
		case "VAULT_TOKEN":
			return "vault"
		}
		return os.Getenv(name)
	}
	worker, err := flags.Build(workerflags.Options{Getenv: getenv, Tenant: a.name, Environment: environment, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	base, err := blob.FileURI(filepath.Join(a.dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	plans, err := blob.FileURI(filepath.Join(a.dir, "plans"))
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.New(blob.Options{Allow: []string{base, plans, a.w.plans.URL + "/" + a.name}})
	if err != nil {
		t.Fatal(err)
	}
	token := a.tokens["worker"]
	if i == 0 { // Operators may give a runner the token of all tenants.
		token = a.w.node.Token(a.w.admin, "runner-of-all", []string{"*"}, runlogv1.Role_PRODUCER, runlogv1.Role_READER)
		a.w.check.keeps(a.name, token, "token of all tenants")
		a.w.check.keeps(a.other.name, token, "token of all tenants")
	}
	c := a.dial(token)
	registry := prometheus.NewRegistry()
	a.own.worker = "worker-" + a.mark()
	r, err := runner.New(runner.Options{
		Client: c, Worker: a.own.worker, Tenant: a.name, Project: project, Environment: environment, Blobs: blobs, Base: base,
		Executors: worker.Executors, Secrets: worker.Secrets, Logger: log, TTL: time.Hour, Max: 4, Registerer: registry,
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), As: a.as,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // It ends with its context.
	}()
	a.runner = httptest.NewServer(r.Handler())
	t.Cleanup(func() {
		cancel()
		<-ended
		a.runner.Close()
		_ = c.Close()
	})
}

// as returns a client with the token of a caller of the runner's API.
func (a *tenant) as(authorization string) (*client.Client, func(), error) {
	c := a.dial(strings.TrimPrefix(authorization, "Bearer "))
	return c, func() { _ = c.Close() }, nil
}

// lines hands each line of a log over.
type lines struct{ read func(line []byte) }

func (l *lines) Write(line []byte) (int, error) {
	l.read(line)
	return len(line), nil
}

// servePlans has the plans of both tenants, each in a folder. It resolves a path as careless
// servers do, and redirects.
func (w *world) servePlans(rw http.ResponseWriter, r *http.Request) {
	if to := r.URL.Query().Get("to"); to != "" {
		http.Redirect(rw, r, to, http.StatusFound)
		return
	}
	i := slices.IndexFunc(w.tenants[:], func(a *tenant) bool { return strings.HasPrefix(filepath.Clean(r.URL.Path), "/"+a.name+"/") })
	if i < 0 {
		http.NotFound(rw, r)
		return
	}
	_, _ = rw.Write(w.tenants[i].own.hidden)
}

// serveVault has the secrets of both tenants, each in a folder. It resolves a path as careless
// servers do.
func (w *world) serveVault(rw http.ResponseWriter, r *http.Request) {
	clean := filepath.Clean(r.URL.Path)
	for _, a := range w.tenants {
		if strings.HasPrefix(clean, "/v1/kv/data/"+a.name+"/") {
			_, _ = fmt.Fprintf(rw, `{"data":{"data":{"password":%q}}}`, a.own.secret["vault"])
			return
		}
	}
	http.NotFound(rw, r)
}

// counted counts an attack of a kind, and how it was answered.
func (w *world) counted(kind, answer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts[kind] == nil {
		w.counts[kind] = map[string]int{}
	}
	w.counts[kind][answer]++
}

// subscriptionLabel is in the metrics of a node, which are the operator's and not a tenant's.
var subscriptionLabel = regexp.MustCompile(`subscription="[^"]*"`)

// request makes an HTTP call, and checks the answer. The header has names and values.
func (a *tenant) request(kind, place, method, url, body string, header ...string) (status int, answer []byte) {
	limit := patienceOf(kind)
	if strings.Contains(url, ":watch") {
		limit = streamPatience
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil // No client can send it.
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	a.w.check.sends(a.name, []byte(method+" "+url+" "+body))
	resp, err := a.http.Do(req)
	if err != nil {
		a.w.check.receives(a.name, kind, place, []byte(err.Error()))
		return 0, nil
	}
	defer resp.Body.Close()
	answer, _ = io.ReadAll(resp.Body) // A watch ends with ctx.
	read := answer
	if place == "metrics of the node" {
		read = subscriptionLabel.ReplaceAll(answer, nil)
	}
	a.w.check.receives(a.name, kind, place, fmt.Appendf(nil, "%d %v %s", resp.StatusCode, resp.Header, read))
	return resp.StatusCode, answer
}

// must requires an answer of the tenant's own runner.
func (a *tenant) must(method, path, body string) map[string]any {
	t := a.w.t
	t.Helper()
	status, text := a.request("none", "runner", method, a.runner.URL+path, body, "Authorization", "Bearer "+a.tokens["writer"])
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil || status >= http.StatusMultipleChoices {
		t.Fatalf("%s: %s %s: %d %s", a.name, method, path, status, text)
	}
	return answer
}
