package runner_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	"runlog/engine/executor"
	"runlog/engine/runner"
	"runlog/engine/secret"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// serve returns the API of a runner that executes nothing.
func (b *bed) serve(t testing.TB, o runner.Options) *process {
	t.Helper()
	r, err := runner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	p := b.api(t, r, o.Client)
	t.Cleanup(p.api.Close)
	return p
}

// serveAs returns the API of a runner whose callers are someone.
func (b *bed) serveAs(t testing.TB, who *runlogv1.WhoAmIResponse) *process {
	t.Helper()
	as := b.srv.Client(client.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, name string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, name, req, reply, cc, opts...)
			if me, ok := reply.(*runlogv1.WhoAmIResponse); ok {
				me.Name, me.Tenants, me.Roles = who.GetName(), who.GetTenants(), who.GetRoles()
			}
			return err
		},
	)}})
	o := b.options(t, b.srv.Client(client.Options{}))
	o.As = func(string) (*client.Client, func(), error) { return as, func() {}, nil }
	return b.serve(t, o)
}

// TestAttestedByATT6: the log gets the name of the attester as it was sent, from the credentials of
// the caller, and decides. What it refuses is refused.
func TestAttestedByATT6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testAttestedByATT6)
}

func testAttestedByATT6(t *testing.T) {
	b := newBed(t)
	m := b.start(t)
	id, _ := m.begin(m.manifest(acceptance))
	_, _, stepRuns := m.steps(id)
	denied := b.srv.Client(client.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, name string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if call, ok := req.(*runlogv1.AttestStepRequest); ok {
				return status.Errorf(codes.PermissionDenied, "not as %s", call.GetAttestedBy())
			}
			return invoke(ctx, name, req, reply, cc, opts...)
		},
	)}})
	o := b.options(t, b.srv.Client(client.Options{}))
	o.As = func(string) (*client.Client, func(), error) { return denied, func() {}, nil }
	body := strings.Replace(attestB, `"jed"`, `"TOKEN:jed"`, 1)
	is, answer := b.serve(t, o).call("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", body)
	if text, _ := answer["error"].(string); is != http.StatusForbidden || !strings.Contains(text, "TOKEN:jed") || slices.Contains(b.types(t, id), "StepAttested B") {
		t.Errorf("%d %v: %q", is, answer, b.types(t, id))
	}
}

// TestStepRunIDATT6: a step run is a UUIDv5 of its run, step and attempt, forever the same.
func TestStepRunIDATT6(t *testing.T) {
	t.Parallel()
	first := runner.StepRunID("run-1", "A", 1)
	if id, err := uuid.Parse(first); err != nil || id.Version() != 5 || first != "3c9a3272-ed2d-5c77-912a-a37123cf559d" {
		t.Errorf("%s: %v, version %d", first, err, id.Version())
	}
	for _, other := range []string{
		runner.StepRunID("run-1", "A", 2), runner.StepRunID("run-1", "B", 1), runner.StepRunID("run-2", "A", 1), runner.StepRunID(`run-1" "A`, "", 1),
	} {
		if other == first {
			t.Errorf("two step runs are %s", first)
		}
	}
}

// TestManifestAccessSEC3: manifests are for callers of the runner's tenant with a role alone.
func TestManifestAccessSEC3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testManifestAccessSEC3)
}

func testManifestAccessSEC3(t *testing.T) {
	b := newBed(t)
	own := b.srv.Client(client.Options{})
	m := b.serve(t, b.options(t, own)).manifest(acceptance)
	for _, who := range []struct {
		tenants         []string
		roles           []runlogv1.Role_Value
		read, write, id int
	}{
		{[]string{"*"}, []runlogv1.Role_Value{runlogv1.Role_ADMIN}, 200, 201, 200},
		{[]string{"acme"}, []runlogv1.Role_Value{runlogv1.Role_PRODUCER}, 200, 201, 200},
		{[]string{"acme"}, []runlogv1.Role_Value{runlogv1.Role_READER}, 200, 403, 403},
		{[]string{"evil"}, []runlogv1.Role_Value{runlogv1.Role_ADMIN}, 403, 403, 403},
		{nil, []runlogv1.Role_Value{runlogv1.Role_READER}, 403, 403, 403},
		{[]string{"acme"}, nil, 403, 403, 403},
	} {
		p := b.serveAs(t, &runlogv1.WhoAmIResponse{Tenants: who.tenants, Roles: who.roles})
		for _, call := range []struct {
			method, path, body string
			want               int
		}{
			{"GET", "/api/manifests/" + m, "", who.read}, {"POST", "/api/manifests", `{"name":"n","steps":[{"step_key":"A"}]}`, who.write},
		} {
			if status, answer := p.call(call.method, call.path, call.body); status != call.want {
				t.Errorf("%v %v: %s %s: %d %v", who.tenants, who.roles, call.method, call.path, status, answer)
			}
		}
		if who.id == http.StatusForbidden {
			if status, answer := p.call("POST", "/api/runs", `{"manifest_id":"`+m+`","initiated_by":"jed"}`); status != who.id {
				t.Errorf("%v %v: a run: %d %v", who.tenants, who.roles, status, answer)
			}
		}
	}
}

// TestStoredManifestsATT1: what was stored can be read, whatever characters it has, and a task may
// say that it has no contract.
func TestStoredManifestsATT1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testStoredManifestsATT1)
}

func testStoredManifestsATT1(t *testing.T) {
	b := newBed(t)
	p := b.serve(t, b.options(t, b.srv.Client(client.Options{})))
	for name, steps := range map[string]string{
		"escapes": `{"step_key":"A","input":"` + strings.Repeat("<", 2<<20) + `"}`,
		"nulls":   `{"step_key":"A","step_type":null,"depends_on":null,"executor":null,"input":null,"compute_contract":null}`,
	} {
		m := p.manifest(steps)
		if got := p.ok("GET", "/api/manifests/"+m, ""); got["id"] != m {
			t.Errorf("%s: %.200v", name, got)
		}
	}
}

// TestOtherDefaultExecutorATT2: a runner with another default executor executes a manifest that was
// stored before.
func TestOtherDefaultExecutorATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOtherDefaultExecutorATT2)
}

func testOtherDefaultExecutorATT2(t *testing.T) {
	b := newBed(t)
	o := b.options(t, b.srv.Client(client.Options{}))
	o.DefaultExecutor = "noop"
	m := b.serve(t, o).manifest(`{"step_key":"A"}`)
	p := b.start(t)
	if id, status := p.begin(m); status != "success" || b.count(id, "A") != 1 {
		t.Errorf("the run is %s; A was executed %d times", status, b.count(id, "A"))
	}
}

// TestCallerLeavesATT2: a caller that does not wait for its run learns the id of the run.
func TestCallerLeavesATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testCallerLeavesATT2)
}

func testCallerLeavesATT2(t *testing.T) {
	b := newBed(t)
	o := b.options(t, b.srv.Client(client.Options{}))
	m := b.serve(t, o).manifest(`{"step_key":"A"}`)
	r, err := runner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	w := httptest.NewRecorder()
	body := strings.NewReader(`{"manifest_id":"` + m + `","initiated_by":"jed"}`)
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/api/runs", body)
	req.Header.Set("Content-Type", "application/json")
	r.Handler().ServeHTTP(w, req)
	var answer struct{ ID, Status string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK || answer.ID == "" || answer.Status != "running" {
		t.Errorf("%d %s %v", w.Code, w.Body, err)
	}
}

// TestLargeContractATT4: a contract of the largest size is waited for, attested and kept.
func TestLargeContractATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testLargeContractATT4)
}

func testLargeContractATT4(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	large := strings.Replace(acceptance, `"notes":"n"`, `"notes":"`+strings.Repeat("<", 20<<10)+`"`, 1)
	id, status := p.begin(p.manifest(large))
	_, _, stepRuns := p.steps(id)
	if status != "waiting" {
		t.Fatalf("the run is %s", status)
	}
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	step := p.ok("GET", "/api/runs/"+id, "")["steps"].([]any)[1].(map[string]any)
	if got, want := step["attestation"].(map[string]any)["contract_snapshot"], step["compute_contract"]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the attestation has the contract %.100v, want %.100v", got, want)
	}
	tooLarge := strings.Replace(acceptance, `"notes":"n"`, `"notes":"`+strings.Repeat("n", 100<<10)+`"`, 1)
	if status, answer := p.call("POST", "/api/manifests", `{"name":"m","steps":[`+tooLarge+`]}`); status != http.StatusUnprocessableEntity {
		t.Errorf("a contract of 100 KiB: %d %v", status, answer)
	}
}

// refusing fails with a text that the log refuses.
type refusing struct{}

func (refusing) Execute(context.Context, executor.Task) (executor.Result, error) {
	return executor.Result{}, executor.Fail("BROKEN", "the server says ghp_%s", strings.Repeat("a", 36))
}

// busy is a provider of secrets that does not answer at first.
type busy struct{ left chan struct{} }

func (b busy) Resolve(ctx context.Context, refs []string, scope secret.Scope) (*secret.Set, error) {
	select {
	case <-b.left:
		return nil, &secret.Error{Ref: refs[0], Reason: secret.ErrUnavailable}
	default:
		return secret.Mux{"env": secret.OwnEnv(func(string) (string, bool) { return "value-of-a-secret", true })}.Resolve(ctx, refs, scope)
	}
}

// TestStepsThatFailATT2: a step fails by itself if its error has a text that the log refuses. A
// provider of secrets that does not answer is asked again.
func TestStepsThatFailATT2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testStepsThatFailATT2)
}

func testStepsThatFailATT2(t *testing.T) {
	b := newBed(t)
	c := b.srv.Client(client.Options{})
	o := b.options(t, c)
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"noop": executor.Noop{}, "refusing": refusing{}})
	if err != nil {
		t.Fatal(err)
	}
	provider := busy{make(chan struct{}, 1)}
	provider.left <- struct{}{}
	o.Executors, o.DefaultExecutor, o.Secrets = registry, "noop", provider
	p := b.run(t, o)
	id, status := p.begin(p.manifest(`{"step_key":"A","executor":"refusing"},{"step_key":"B","depends_on":["A"]}`))
	if _, steps, _ := p.steps(id); status != "error" || !slices.Equal(steps, []string{"A=FAIL", "B=SKIPPED"}) {
		t.Errorf("the run is %s: %v: %q", status, steps, b.types(t, id))
	}
	body := []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"noop","secretRefs":["env:TOKEN"],"retry":{"initial":"1ms"}}]}`)
	ref := b.plan(t, body)
	engineType := runner.EngineType
	if _, err := c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{
		RunRequestId: "s", RunId: "s", TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue, EngineType: &engineType, PlanRef: ref,
	}); err != nil {
		t.Fatal(err)
	}
	p.until("s", "success")
}

// TestManyFaultsPLAN2: a plan with many faults fails its run, with faults on record.
func TestManyFaultsPLAN2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testManyFaultsPLAN2)
}

func testManyFaultsPLAN2(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	var members strings.Builder
	for i := range 200 {
		fmt.Fprintf(&members, `, "%s%d": 1`, strings.Repeat("m", 900), i)
	}
	ref := b.plan(t, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"noop"`+members.String()+`}]}`))
	engineType := runner.EngineType
	if _, err := p.c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{
		RunRequestId: "f", RunId: "f", TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue, EngineType: &engineType, PlanRef: ref,
	}); err != nil {
		t.Fatal(err)
	}
	p.until("f", "error")
	var last *runlogv1.EventRecord
	for e, err := range p.c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "f", PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			t.Fatal(err)
		}
		last = e
	}
	if !bytes.Contains(last.GetPayloadJson(), []byte(`"code":"PLAN_INVALID"`)) || !bytes.Contains(last.GetPayloadJson(), []byte(`"faults"`)) {
		t.Errorf("%s %.300s", last.GetEventType(), last.GetPayloadJson())
	}
}

// plan stores a plan, and returns its reference.
func (b *bed) plan(t testing.TB, body []byte) *runlogv1.PlanRef {
	t.Helper()
	digest := sha256.Sum256(body)
	sum := hex.EncodeToString(digest[:])
	uri := b.base + "/" + sum + ".json"
	if err := b.blobs.Put(t.Context(), uri, bytes.NewReader(body), int64(len(body))); err != nil {
		t.Fatal(err)
	}
	return &runlogv1.PlanRef{Uri: uri, Sha256: sum, SchemaVersion: "v1.2", PlanId: "p", PlanVersion: "1"}
}
