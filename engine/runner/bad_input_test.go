package runner_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"runlog/client"
	"runlog/client/watcher"
	"runlog/engine/executor"
	"runlog/engine/executor/command"
	"runlog/engine/plan"
	"runlog/engine/runner"
	"runlog/engine/secret"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
	"runlog/testbed/bubble"
)

// request requests a run of a plan.
func (b *bed) request(t testing.TB, runID string, ref *runlogv1.PlanRef) {
	t.Helper()
	engineType := runner.EngineType
	if _, err := b.c.RequestRun(t.Context(), &runlogv1.RequestRunRequest{
		RunRequestId: runID, RunId: runID, TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue, EngineType: &engineType, PlanRef: ref,
	}); err != nil {
		t.Fatal(err)
	}
}

// failure returns the error of the event that has ended a run.
func (b *bed) failure(t testing.TB, runID string) (code string, details map[string]any) {
	t.Helper()
	var p struct {
		Error struct {
			Code    string
			Details map[string]any
		}
	}
	for e, err := range b.c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: runID, PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err == nil && e.GetEventType() == "RunFailed" {
			err = json.Unmarshal(e.GetPayloadJson(), &p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return p.Error.Code, p.Error.Details
}

// TestPlanSwappedMeanwhilePLAN2: a plan that is swapped while its run waits fails the run when a
// runner that does not have the approved plan resumes it. The last event has both digests, and an
// alert stands in the log of the runner.
func TestPlanSwappedMeanwhilePLAN2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testPlanSwappedMeanwhilePLAN2)
}

func testPlanSwappedMeanwhilePLAN2(t *testing.T) {
	b := newBed(t)
	log := &logged{}
	o := b.options(t, b.srv.Client(client.Options{}))
	o.MemoryBytes = 1
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	p := b.run(t, o)
	id, status := p.begin(p.manifest(acceptance))
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	run, err := p.c.GetRun(t.Context(), &runlogv1.GetRunRequest{RunId: id})
	if err != nil || status != "waiting" {
		t.Fatal(status, err)
	}
	evil := `{"schemaVersion":"v1.2","planId":"` + run.GetPlanRef().GetPlanId() + `","planVersion":"1","steps":[{"stepId":"A","type":"count"},{"stepId":"evil","type":"count"}]}`
	if err := b.blobs.Put(t.Context(), run.GetPlanRef().GetUri(), strings.NewReader(evil), int64(len(evil))); err != nil {
		t.Fatal(err)
	}
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "error" {
		t.Errorf("resumed: %v", got)
	}
	code, details := b.failure(t, id)
	if code != plan.CodeIntegrity || details["expectedSha256"] != run.GetPlanRef().GetSha256() || details["actualSha256"] == details["expectedSha256"] {
		t.Errorf("%s %v", code, details)
	}
	if b.count(id, "C") != 0 || b.count(id, "evil") != 0 || log.count("level=ERROR") != 1 || log.count("alert=PLAN_INTEGRITY_VALIDATION_FAILED") != 1 {
		t.Errorf("executed %v; %d alerts", b.executed, log.count("alert="))
	}
}

// TestPlanVersionsPLAN3: a run of a plan in a version that is not read fails, and says so. No step
// is executed.
func TestPlanVersionsPLAN3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testPlanVersionsPLAN3)
}

func testPlanVersionsPLAN3(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	for i, tt := range []struct{ version, want string }{
		{"v1.3", plan.CodeVersionMismatch}, {"v2.0", plan.CodeVersionMismatch}, {"v0.9", plan.CodeVersionMismatch}, {"v1.1", ""}, {"v1", ""},
	} {
		ref := b.plan(t, fmt.Appendf(nil, `{"schemaVersion":%q,"planId":"p","planVersion":"1","steps":[{"stepId":"A","type":"count"}]}`, tt.version))
		ref.SchemaVersion = tt.version
		id := fmt.Sprint("version-", i)
		b.request(t, id, ref)
		p.until(id, map[bool]string{true: "error", false: "success"}[tt.want != ""])
		if code, _ := b.failure(t, id); code != tt.want || (b.count(id, "A") == 0) != (tt.want != "") {
			t.Errorf("%s: the run fails with %q; A was executed %d times", tt.version, code, b.count(id, "A"))
		}
	}
}

// TestResumeOnlyWaitingATT5: a run that is running, has succeeded, has failed or was cancelled is
// not resumed.
func TestResumeOnlyWaitingATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testResumeOnlyWaitingATT5)
}

func testResumeOnlyWaitingATT5(t *testing.T) {
	b := newBed(t)
	b.fail["broken"] = 100
	p := b.start(t)
	refused := func(id, status string) {
		t.Helper()
		before := b.types(t, id)
		got, answer := p.call("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`)
		if is, _, _ := p.steps(id); got != http.StatusConflict || is != status || !slices.Equal(b.types(t, id), before) {
			t.Errorf("a resume of a run that is %s: %d %v: %q", is, got, answer, b.types(t, id))
		}
	}
	hanging := p.manifest(`{"step_key":"A","executor":"hang"}`)
	ended := make(chan string, 1)
	go func() {
		_, status := p.begin(hanging)
		ended <- status
	}()
	running := p.running(hanging)
	refused(running, "running")
	if _, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: running, SignalId: "s", SignalType: "CANCEL"}); err != nil {
		t.Fatal(err)
	}
	if status := <-ended; status != "error" {
		t.Error(status)
	}
	refused(running, "error") // It was cancelled.
	id, _ := p.begin(p.manifest(`{"step_key":"broken"}`))
	refused(id, "error")
	id, _ = p.begin(p.manifest(`{"step_key":"A"}`))
	refused(id, "success")
}

// TestHostileCommandsENG7: commands that hang, print a gigabyte, exit by a signal or print their
// secret end their steps and nothing else. No event, answer or log has the secret.
func TestHostileCommandsENG7(t *testing.T) { // Alone: beside others a gigabyte takes long.
	if testing.Short() {
		t.Skip("a gigabyte goes through a pipe")
	}
	const token = "hunter2-is-no-good-password"
	b := newRealBed(t) // the processes live in real time
	log := &logged{}
	o := b.options(t, b.srv.Client(client.Options{}))
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"command": command.New(command.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	o.Executors, o.DefaultExecutor, o.Logger = registry, "command", slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Secrets = secret.Mux{"env": secret.OwnEnv(func(string) (string, bool) { return token, true })}
	p := b.run(t, o)
	var steps []string
	for id, script := range map[string]string{
		"hangs": `sleep 600`, "gigabyte": `yes | head -c 1073741824`, "killed": `kill -SEGV $$`, "leaks": `echo "{\"is\":\"$T\"}"; echo $T >&2`,
		"leaks-failing": `echo $T; echo $T | base64 >&2; exit 3`, "works": `echo '{"rows":1}'`,
	} {
		inputs, err := json.Marshal(map[string]any{"argv": []string{script}, "shell": true, "secretEnv": map[string]string{"T": "env:TOKEN"}})
		if err != nil {
			t.Fatal(err)
		}
		timeout := map[bool]string{true: "100ms", false: "1h"}[id == "hangs"]
		steps = append(steps, fmt.Sprintf(`{"stepId":%q,"type":"command","inputs":%s,"secretRefs":["env:TOKEN"],"timeout":%q,"retry":{"maxAttempts":2,"initial":"1ms"}}`, id, inputs, timeout))
	}
	b.request(t, "hostile", b.plan(t, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[`+strings.Join(steps, ",")+`]}`)))
	for s, err := range watcher.Snapshots(await.Context(t), b.c, "hostile", "") {
		if err != nil {
			t.Fatal(err)
		}
		if s.Status() == runlogv1.RunStatus_FAILED {
			break
		}
	}
	_, got, _ := p.steps("hostile")
	slices.Sort(got)
	if want := []string{"gigabyte=SUCCESS", "hangs=FAIL", "killed=FAIL", "leaks-failing=FAIL", "leaks=SUCCESS", "works=SUCCESS"}; !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
	said, err := json.Marshal(p.ok("GET", "/api/runs/hostile", ""))
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range p.c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "hostile", PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, e.String()...)
		said = append(said, e.GetPayloadJson()...)
	}
	said = append(said, log.text.String()...)
	set, err := secret.NewSet(map[string]string{"env:TOKEN": token})
	if err != nil {
		t.Fatal(err)
	}
	if found := set.Redactor().Scan(said); len(found) > 0 {
		t.Errorf("the secret is in an event, an answer or a log: %v", found)
	}
	if len(said) < 1000 {
		t.Errorf("only %d bytes were searched", len(said))
	}
}

// TestSkippedComputeATT3: a compute step that is skipped is shown as one, with its contract.
func TestSkippedComputeATT3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSkippedComputeATT3)
}

func testSkippedComputeATT3(t *testing.T) {
	b := newBed(t)
	b.fail["A"] = 100
	p := b.start(t)
	id, status := p.begin(p.manifest(strings.Replace(acceptance, `"notes":"n"`, `"notes":"`+strings.Repeat("<", 20<<10)+`"`, 1)))
	step := p.ok("GET", "/api/runs/"+id, "")["steps"].([]any)[1].(map[string]any)
	contract, _ := step["compute_contract"].(map[string]any)
	if status != "error" || step["status"] != "SKIPPED" || step["step_type"] != "compute" || contract["executor"] != "excel_farm" || step["attestation"] != nil {
		t.Errorf("the run is %s: %.300v", status, step)
	}
}
