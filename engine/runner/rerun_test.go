package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/artifact"
	"runlog/engine/executor"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// rerun reruns a run, waits until the rerun waits or has ended, and returns its id and status.
func (p *process) rerun(runID string) (id, status string) {
	p.t.Helper()
	id = p.ok("POST", "/api/runs/"+runID+"/rerun", `{"initiated_by":"jed"}`)["id"].(string)
	run := p.ok("GET", "/api/runs/"+id+"?wait=1h", "")
	if run["rerun_of"] != runID {
		p.t.Errorf("the rerun of %s says %v", runID, run)
	}
	return id, run["status"].(string)
}

// TestRerunSIG7: a run that has failed is rerun: what has succeeded there is not executed again,
// and later steps see its output. What ran only because a step had failed is decided again. A
// compute step is attested in each run (SEC-10).
func TestRerunSIG7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRerunSIG7)
}

func testRerunSIG7(t *testing.T) {
	b := newBed(t)
	fails := true
	var upstream, parameters string
	p := b.play(t, func(_ context.Context, task executor.Task) error {
		if task.StepID == "C" {
			text, err := json.Marshal(task.Upstream)
			if upstream, parameters = string(text), string(task.Parameters); fails || err != nil {
				return executor.Fail("BROKEN", "by hand")
			}
		}
		return nil
	})
	const contract = `{"executor":"x","inputs":[],"outputs":[],"verification":"operator_attest"}`
	ref := b.plan(t, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"script"},
		{"stepId":"B","type":"compute","dependsOn":["A"],"computeContract":`+contract+`},{"stepId":"C","type":"script","dependsOn":["A","B"]},
		{"stepId":"D","type":"script","dependsOn":["C"]},{"stepId":"mourn","type":"script","dependsOn":["C"],"when":[{"step":"C","status":"FAILED"}]}]}`))
	engineType, day := runner.EngineType, &structpb.Struct{Fields: map[string]*structpb.Value{"day": structpb.NewStringValue("monday")}}
	if _, err := p.c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{RunRequestId: "first", RunId: "first", TenantId: "acme", ProjectId: "shop",
		EnvironmentId: "prod", Queue: runner.DefaultQueue, EngineType: &engineType, PlanRef: ref, Context: day}); err != nil {
		t.Fatal(err)
	}
	attest := func(id string) {
		p.until(id, "waiting")
		_, _, stepRuns := p.steps(id)
		p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	}
	attest("first")
	if status, got := p.call("POST", "/api/runs/first/rerun", `{"initiated_by":"jed"}`); status != http.StatusConflict {
		t.Errorf("a rerun of a run that waits: %d %v", status, got)
	}
	resume := func(id, ends string) {
		p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`)
		p.until(id, ends)
	}
	resume("first", "error")
	second, _ := p.rerun("first")
	attest(second)
	resume(second, "error")
	fails = false
	third, _ := p.rerun(second)
	attest(third)
	resume(third, "success")
	if !strings.Contains(upstream, `"of":"A"`) || !strings.Contains(upstream, "model.xlsx") && !strings.Contains(upstream, "y.xlsx") || !strings.Contains(parameters, "monday") {
		t.Errorf("the third run has %s and %s", upstream, parameters)
	}
	taken := []string{"RunQueued", "RunStarted", "StepCompleted A 1.1", "StepWaitingForAttestation B 1.1", "StepAttested B 1.1", "RunResumed", "StepStarted C 1.1"}
	b.tells(t, second, append(slices.Clone(taken), "StepFailed C 1.1", "StepSkipped D 1.1", "StepStarted mourn 1.1", "StepCompleted mourn 1.1", "RunFailed")...)
	b.tells(t, third, append(slices.Clone(taken), "StepCompleted C 1.1", "StepStarted D 1.1", "StepCompleted D 1.1", "StepSkipped mourn 1.1", "RunCompleted")...)
}

// TestKilledRerunSIG7 kills the runner before and after each event of a rerun. Another one goes on,
// and what was taken over is there once.
func TestKilledRerunSIG7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testKilledRerunSIG7)
}

func testKilledRerunSIG7(t *testing.T) {
	b := newBed(t)
	b.ttl = time.Second
	fails := true
	do := func(_ context.Context, task executor.Task) error {
		if task.StepID == "C" && fails {
			return executor.Fail("BROKEN", "by hand")
		}
		return nil
	}
	p := b.play(t, do)
	first, _ := p.begin(p.manifest(`{"step_key":"A"},{"step_key":"B"},{"step_key":"C"}`))
	p.kill()
	fails = false
	for round := range 10 {
		var dies *process
		begun, killed := make(chan struct{}), make(chan struct{})
		o := b.scripted(t, b.srv.Client(dying(1+round/2, round%2 == 0, func() {
			<-begun
			dies.kill()
			close(killed)
		})), do)
		dies = b.run(t, o)
		close(begun)
		api := b.serve(t, b.scripted(t, b.srv.Client(client.Options{}), do))
		id := api.ok("POST", "/api/runs/"+first+"/rerun", `{"initiated_by":"jed"}`)["id"].(string)
		<-killed
		next := b.play(t, do)
		next.until(id, "success")
		if got := b.story(t, id); !slices.Equal(got[:4], []string{"RunQueued", "RunStarted", "StepCompleted A 1.1", "StepCompleted B 1.1"}) {
			t.Errorf("round %d: %q", round, got)
		}
		b.clean(t, id)
		next.kill()
	}
}

// TestRerunOfGoneArtifactsSIG7: a rerun that would take over an artifact which has expired, or is
// not in its store any more, fails, and says so. It executes nothing.
func TestRerunOfGoneArtifactsSIG7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRerunOfGoneArtifactsSIG7)
}

func testRerunOfGoneArtifactsSIG7(t *testing.T) {
	b := newBed(t)
	p := b.run(t, b.withArtifact(t))
	for key, want := range map[string]string{"gone": "is gone", "kept": "", "elsewhere": ""} {
		id, _ := p.begin(p.manifest(fmt.Sprintf(`{"step_key":%q},{"step_key":"fails","depends_on":[%[1]q]}`, key)))
		again, _ := p.rerun(id)
		run := p.ok("GET", "/api/runs/"+again, "")
		why, _ := run["error"].(map[string]any)
		refused := why["code"] == "RERUN_REFUSED" && strings.Contains(fmt.Sprint(why["message"]), want)
		if started := slices.Contains(b.types(t, again), "StepStarted fails"); refused != (want != "") || started == refused {
			t.Errorf("%s: %v", key, run)
		}
	}
}

// TestRerunReadsArtifactsAsShownSIG7ENV12: a rerun looks for the artifacts that the snapshot shows
// of a step, whatever else its payload has. So no time, name or value that a snapshot does not know
// hides an artifact that is gone.
func TestRerunReadsArtifactsAsShownSIG7ENV12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRerunReadsArtifactsAsShownSIG7ENV12)
}

func testRerunReadsArtifactsAsShownSIG7ENV12(t *testing.T) {
	b := newBed(t)
	p := b.play(t, func(context.Context, executor.Task) error { return nil })
	ref := b.plan(t, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"script"},
		{"stepId":"B","type":"script","dependsOn":["A"]}]}`))
	gone := `"uri":"` + b.base + `/gone"`
	const elsewhere = `"uri":"s3://elsewhere/a"`
	for name, c := range map[string]struct{ payload, want string }{
		"behind-a-time":   {`{"artifacts":[{` + elsewhere + `,"expiresAt":"soon"},{` + gone + `}]}`, "is gone"},
		"behind-a-number": {`{"artifacts":[7,{` + gone + `}]}`, "is gone"},
		"another-member":  {`{"artifactRefs":[{` + gone + `}]}`, "is gone"},
		"two-spellings":   {`{"artifacts":[{` + gone + `,"URI":"s3://elsewhere/a"}]}`, "is gone"},
		"small-letters":   {`{"artifacts":[{` + elsewhere + `,"expiresAt":"1999-12-31t23:59:59z"}]}`, "has expired"},
		"not-shown":       {`{"artifacts":[],"artifactRefs":[{` + gone + `}]}`, ""},
		"no-uri":          {`{"artifacts":[{"Uri":"` + b.base + `/gone"}]}`, ""},
	} {
		of := &events.Run{ID: name, Tenant: "acme", Project: "shop", Environment: "prod", Plan: "p", PlanVersion: "1"}
		meta := &runlogv1.Run{RunId: name, TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", PlanRef: ref}
		started, err := engine.Started(meta, runner.RefOf(name))
		if err != nil {
			t.Fatal(err)
		}
		once := events.Attempt{Logical: 1, Engine: 1}
		completed, err := of.StepCompleted("A", once, json.RawMessage(c.payload))
		if err != nil {
			t.Fatal(err)
		}
		failed, err := of.Event("RunFailed", "", once, map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.c.CreateRun(t.Context(), &runlogv1.CreateRunRequest{Run: meta, Events: []*runlogv1.EventWrite{started, completed, failed}}); err != nil {
			t.Fatal(name, err)
		}
		engineType, again := runner.EngineType, name+"-again"
		if _, err := p.c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{RunRequestId: again, RunId: again, TenantId: "acme", ProjectId: "shop",
			EnvironmentId: "prod", Queue: runner.DefaultQueue, EngineType: &engineType, PlanRef: ref, RerunOf: &name}); err != nil {
			t.Fatal(name, err)
		}
		run := p.ok("GET", "/api/runs/"+again+"?wait=1h", "")
		why, _ := run["error"].(map[string]any)
		refused := why["code"] == "RERUN_REFUSED" && strings.Contains(fmt.Sprint(why["message"]), c.want)
		if refused != (c.want != "") || (run["status"] == "success") == refused {
			t.Errorf("%s: %v", name, run)
		}
	}
}

// withArtifact returns the options of a runner whose steps leave an artifact, but for the step
// fails.
func (b *bed) withArtifact(t *testing.T) runner.Options {
	t.Helper()
	o := b.options(t, b.srv.Client(client.Options{MinBackoff: 5 * time.Millisecond}))
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"leave": leaving{b}})
	if err != nil {
		t.Fatal(err)
	}
	o.Executors, o.DefaultExecutor = registry, "leave"
	return o
}

type leaving struct{ *bed }

func (l leaving) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	at := map[string]string{"gone": l.base + "/gone", "kept": l.base + "/kept", "elsewhere": "s3://elsewhere/x"}[task.StepID]
	if at == "" {
		return executor.Result{}, executor.Fail("BROKEN", "always")
	}
	if task.StepID == "kept" {
		if err := l.blobs.Put(ctx, at, strings.NewReader("kept"), 4); err != nil {
			return executor.Result{}, err
		}
	}
	ref := artifact.Ref{URI: at, Name: task.StepID, Bytes: 4, SHA256: strings.Repeat("ab", 32)}
	return executor.Result{Artifacts: []artifact.Ref{ref}}, nil
}

// TestForeignRerunSEC4SIG7: a rerun takes nothing over from a run of another tenant, though the
// runner may read both and a decider has named that run.
func TestForeignRerunSEC4SIG7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testForeignRerunSEC4SIG7)
}

func testForeignRerunSEC4SIG7(t *testing.T) {
	b := newBed(t)
	ref := b.plan(t, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"count"},{"stepId":"B","type":"count","dependsOn":["A"]}]}`))
	engineType, at := runner.EngineType, events.Attempt{Logical: 1, Engine: 1}
	later := timestamppb.New(time.Now().Add(5 * time.Second))
	for id, tenant := range map[string]string{"theirs": "rival", "ours": "acme"} {
		if _, err := b.c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{RunRequestId: id, RunId: id, TenantId: tenant, ProjectId: "shop", EnvironmentId: "prod",
			Queue: runner.DefaultQueue, EngineType: &engineType, PlanRef: ref, NotBefore: later}); err != nil {
			t.Fatal(err)
		}
		r := events.Run{ID: id, Tenant: tenant, Project: "shop", Environment: "prod", Plan: "p", PlanVersion: "1", EmittedBy: "other"}
		var list []*runlogv1.EventWrite
		add := func(e *runlogv1.EventWrite, err error) {
			if list = append(list, e); err != nil {
				t.Fatal(err)
			}
		}
		if tenant == "acme" {
			add(r.Event("RunQueued", "", events.Attempt{Logical: 2, Engine: 1}, map[string]any{"rerunOf": "theirs"}))
		} else {
			add(r.Event("RunStarted", "", at, nil))
			add(r.Event("StepStarted", "A", at, nil))
			add(r.StepCompleted("A", at, map[string]any{"output": "the rival's"}))
			add(r.Event("RunFailed", "", at, map[string]any{"error": map[string]any{"code": "X", "message": "x"}}))
		}
		if _, err := b.c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: id, Events: list}); err != nil {
			t.Fatal(err)
		}
	}
	p := b.start(t)
	bubble.Until(t, "the run has ended", func() bool { status, _, _ := p.steps("ours"); return status == "success" || status == "error" })
	for e, err := range b.c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "ours"}) {
		if err != nil || strings.Contains(e.String(), "the rival's") {
			t.Errorf("the run has %v, %v", e, err)
		}
	}
}
