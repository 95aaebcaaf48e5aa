package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// bed is a server, a directory of blobs, and counts of what executors did.
type bed struct {
	net   *network.Network // in fake time; nil: that of the machine, in real time
	srv   *clienttest.Server
	c     *client.Client // of the test
	blobs *blob.Registry
	base  string // the URI of their folder
	// ttl is that of leases. A test in which one passes to another runner has a short one.
	ttl time.Duration

	mu       sync.Mutex
	executed map[string]int // by run and step
	fail     map[string]int // how many attempts of steps still fail
	check    func(runID, step string)
}

// newBed returns a bed in fake time.
func newBed(t testing.TB, opts ...clienttest.Option) *bed {
	t.Helper()
	n := network.New(1)
	return newBedOn(t, n, append(opts, clienttest.On(n))...)
}

// newRealBed returns a bed in real time, for processes and benchmarks. A busy machine must not lose
// a lease.
func newRealBed(t testing.TB) *bed {
	t.Helper()
	b := newBedOn(t, nil)
	b.ttl = time.Hour
	return b
}

func newBedOn(t testing.TB, n *network.Network, opts ...clienttest.Option) *bed {
	t.Helper()
	base, err := blob.FileURI(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.New(blob.Options{Allow: []string{base}})
	if err != nil {
		t.Fatal(err)
	}
	srv := clienttest.Start(t, opts...)
	return &bed{net: n, srv: srv, c: srv.Client(client.Options{}), blobs: blobs, base: base, ttl: 20 * time.Second,
		executed: map[string]int{}, fail: map[string]int{}}
}

// Execute counts, and fails as often as the bed says.
func (b *bed) Execute(_ context.Context, task executor.Task) (executor.Result, error) {
	if b.check != nil {
		b.check(task.RunID, task.StepID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.executed[task.RunID+" "+task.StepID]++
	if b.fail[task.StepID] > 0 {
		b.fail[task.StepID]--
		return executor.Result{}, executor.Retry("BUSY", "not yet")
	}
	up, err := json.Marshal(task.Upstream)
	return executor.Result{Output: fmt.Appendf(nil, `{"of":%q,"upstream":%s}`, task.StepID, up)}, err
}

func (b *bed) count(runID, step string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.executed[runID+" "+step]
}

// options are those of a runner with a client of its own.
func (b *bed) options(t testing.TB, c *client.Client) runner.Options {
	t.Helper()
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"noop": executor.Noop{}, "count": b, "hang": hang{}})
	if err != nil {
		t.Fatal(err)
	}
	return runner.Options{
		Client: c, Worker: "test", Tenant: "acme", Project: "shop", Environment: "prod", Blobs: b.blobs, Base: b.base,
		Executors: registry, DefaultExecutor: "count", TTL: b.ttl,
	}
}

// hang executes a step until its context ends.
type hang struct{}

func (hang) Execute(ctx context.Context, _ executor.Task) (executor.Result, error) {
	<-ctx.Done()
	return executor.Result{}, ctx.Err()
}

// process is a runner and its API.
type process struct {
	t    testing.TB
	api  *httptest.Server
	http *http.Client // of its callers
	kill func()       // ends it at once, and leaves its leases
	c    *client.Client
	r    *runner.Runner
}

// start starts a runner, which works until the test ends or it is killed.
func (b *bed) start(t testing.TB) *process {
	t.Helper()
	return b.startWith(t, client.Options{MinBackoff: 5 * time.Millisecond})
}

// startWith starts a runner with a client of some options.
func (b *bed) startWith(t testing.TB, opts client.Options) *process {
	t.Helper()
	return b.run(t, b.options(t, b.srv.Client(opts)))
}

// run starts a runner with some options.
func (b *bed) run(t testing.TB, o runner.Options) *process {
	t.Helper()
	c := o.Client
	r, err := runner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // It ends with its context or its client.
	}()
	p := b.api(t, r, c)
	// No sync.Once: a second caller would wait for its mutex, and fake time would stand still.
	var begun atomic.Bool
	killed := make(chan struct{})
	p.kill = func() {
		if begun.Swap(true) {
			<-killed
			return
		}
		_ = c.Close()
		cancel()
		<-ended
		p.api.CloseClientConnections()
		p.api.Close()
		close(killed)
	}
	t.Cleanup(p.kill)
	return p
}

// api serves the API of a runner.
func (b *bed) api(t testing.TB, r *runner.Runner, c *client.Client) *process {
	t.Helper()
	p := &process{t: t, c: c, r: r, api: httptest.NewUnstartedServer(r.Handler()), http: http.DefaultClient}
	if b.net != nil {
		_ = p.api.Listener.Close() // the server listens on b.net
		var err error
		if p.api.Listener, err = b.net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		dial := b.net.Dialer("caller")
		calls := &http.Transport{DialContext: func(ctx context.Context, _, at string) (net.Conn, error) { return dial(ctx, at) }}
		t.Cleanup(calls.CloseIdleConnections)
		p.http = &http.Client{Transport: calls}
	}
	p.api.Start()
	return p
}

// call makes a call, and returns its status and its answer.
func (p *process) call(method, path, body string) (int, map[string]any) {
	p.t.Helper()
	status, answer, err := p.try(method, path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	return status, answer
}

func (p *process) try(method, path, body string) (int, map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bubble.Limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.api.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var answer map[string]any
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	return resp.StatusCode, answer, err
}

// ok makes a call that must succeed.
func (p *process) ok(method, path, body string) map[string]any {
	p.t.Helper()
	status, answer := p.call(method, path, body)
	if status != http.StatusOK && status != http.StatusCreated {
		p.t.Fatalf("%s %s: %d %v", method, path, status, answer)
	}
	return answer
}

// manifest stores a manifest, and returns its id.
func (p *process) manifest(steps string) string {
	p.t.Helper()
	return p.ok("POST", "/api/manifests", `{"name":"m","steps":[`+steps+`]}`)["id"].(string)
}

// begin begins a run, waits until it waits or has ended, and returns its id and status.
func (p *process) begin(manifest string) (id, status string) {
	p.t.Helper()
	id = p.ok("POST", "/api/runs", `{"manifest_id":"`+manifest+`","initiated_by":"jed"}`)["id"].(string)
	return id, p.ok("GET", "/api/runs/"+id+"?wait=1h", "")["status"].(string)
}

// steps returns the steps of a run as KEY=STATUS, and their step runs by key.
func (p *process) steps(runID string) (status string, list []string, stepRuns map[string]string) {
	p.t.Helper()
	run := p.ok("GET", "/api/runs/"+runID, "")
	stepRuns = map[string]string{}
	for _, x := range run["steps"].([]any) {
		s := x.(map[string]any)
		list = append(list, fmt.Sprintf("%s=%s", s["step_key"], s["status"]))
		stepRuns[s["step_key"].(string)] = s["step_run_id"].(string)
	}
	return run["status"].(string), list, stepRuns
}

// types returns the types of the events of a run, with their steps.
func (b *bed) types(t testing.TB, runID string) (list []string) {
	t.Helper()
	for e, err := range b.c.ReadEvents(context.Background(), &runlogv1.ReadEventsRequest{RunId: runID}) {
		if err != nil {
			t.Fatal(err)
		}
		text := e.GetEventType()
		if e.GetStepId() != "" {
			text += " " + e.GetStepId()
		}
		list = append(list, text)
	}
	return list
}

const (
	contractB  = `"compute_contract":{"executor":"excel_farm","inputs":["x"],"outputs":["y"],"verification":"operator_attest","notes":"n","timeout_minutes":5}`
	acceptance = `{"step_key":"A"},{"step_key":"B","step_type":"compute","depends_on":["A"],` + contractB + `},{"step_key":"C","depends_on":["B"]}`
	attestB    = `{"attested_by":"jed","outcome":"SUCCESS","notes":"done","artifacts":[{"name":"y","uri":"s3://bucket/y.xlsx","bytes":5}]}`
)
