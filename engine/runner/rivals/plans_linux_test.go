package rivals

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/engine/blob"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
)

// step returns a step of a plan with no retries.
func step(id, kind, inputs string, refs ...string) string {
	text, err := json.Marshal(map[string]any{
		"stepId": id, "type": kind, "inputs": json.RawMessage(inputs), "secretRefs": append([]string{}, refs...), "retry": map[string]any{"maxAttempts": 1}, "timeout": "1h",
	})
	if err != nil {
		panic(err) // The inputs are JSON.
	}
	return string(text)
}

// plan returns the body of a plan.
func (a *tenant) plan(steps ...string) string {
	return fmt.Sprintf(`{"schemaVersion":"v1.2","planId":"plan-%s","planVersion":"1","steps":[%s]}`, a.mark(), strings.Join(steps, ","))
}

// outcome is what has become of a run.
type outcome struct{ run, status string }

// execute has the runner of the tenant execute a plan, and checks all that comes of it.
func (a *tenant) execute(kind, body string, change ...func(*runlogv1.RequestRunRequest)) outcome {
	sum := sha256.Sum256([]byte(body))
	file := filepath.Join(a.dir, "plans", hex.EncodeToString(sum[:])+".json")
	uri, err := blob.FileURI(file)
	if err == nil {
		err = os.WriteFile(file, []byte(body), 0o600)
	}
	if err != nil {
		a.w.t.Error(err)
		return outcome{}
	}
	defer os.Remove(file)
	var head struct{ PlanID string }
	_ = json.Unmarshal([]byte(body), &head) // A plan may be none.
	id := kind + "-" + a.mark()
	req := &runlogv1.RequestRunRequest{
		RunRequestId: id, RunId: id, TenantId: a.name, ProjectId: project, EnvironmentId: environment, Queue: runner.DefaultQueue, EngineType: proto.String(runner.EngineType),
		PlanRef: &runlogv1.PlanRef{Uri: uri, Sha256: hex.EncodeToString(sum[:]), SchemaVersion: "v1.2", PlanId: head.PlanID, PlanVersion: "1"},
	}
	for _, c := range change {
		c(req)
	}
	a.w.check.sends(a.name, []byte(body+req.String()))
	ctx, cancel := context.WithTimeout(context.Background(), patienceOf(kind))
	defer cancel()
	if _, err := a.c.RequestRun(ctx, req); err != nil {
		a.w.check.receives(a.name, kind, "answer", []byte(err.Error()))
		return outcome{req.RunId, "refused"}
	}
	if req.Queue != runner.DefaultQueue {
		return outcome{req.RunId, "queued elsewhere"}
	}
	if kind == "forged-rerun" {
		a.forge(req)
	}
	return a.ended(kind, req.RunId)
}

// ended waits until a run of the tenant's runner has ended, and checks all of it.
func (a *tenant) ended(kind, id string) outcome {
	as := "Bearer " + a.tokens["writer"]
	wait := "?wait=8s"
	if patienceOf(kind) > patience {
		wait = "?wait=1h"
	}
	_, text := a.request(kind, "runner", "GET", a.runner.URL+"/api/runs/"+id+wait, "", "Authorization", as)
	var run struct {
		Status string
		Steps  []struct{ Error struct{ Code string } }
	}
	_ = json.Unmarshal(text, &run) // An answer that is none has no status.
	ctx, cancel := context.WithTimeout(context.Background(), patienceOf("none"))
	defer cancel()
	if run.Status == "running" {
		if _, err := a.c.SendSignal(ctx, &runlogv1.SendSignalRequest{RunId: id, SignalId: "end", SignalType: "CANCEL"}); err != nil {
			a.w.check.receives(a.name, kind, "answer", []byte(err.Error()))
		}
	}
	for e, err := range a.c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: id}) {
		if err != nil {
			a.w.t.Error(id, err)
			break
		}
		text, err := proto.Marshal(e)
		if err != nil {
			a.w.t.Error(err)
		}
		a.w.check.receives(a.name, kind, "events", text)
		if e.GetEventType() == "RunFailed" {
			var p struct{ Error struct{ Code string } }
			_ = json.Unmarshal(e.GetPayloadJson(), &p) // Without a code, the report has none.
			run.Status += " " + p.Error.Code
		}
		if by := e.GetAppendedBy(); strings.HasSuffix(by, "-"+a.other.name) {
			a.w.t.Errorf("%s has appended %s to run %s of %s", by, e.GetEventType(), id, a.name)
		}
	}
	if got, err := a.c.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: id}); err == nil {
		a.w.check.receives(a.name, kind, "snapshot", []byte(got.String()))
	}
	a.lookAtFiles(kind)
	for _, s := range run.Steps {
		if s.Error.Code != "" {
			run.Status += " " + s.Error.Code
		}
	}
	return outcome{id, run.Status}
}

// lookAtFiles checks the files of the tenant's artifacts.
func (a *tenant) lookAtFiles(kind string) {
	files, err := filepath.Glob(filepath.Join(a.dir, "artifacts", "*"))
	if err != nil {
		a.w.t.Error(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err == nil {
			a.w.check.receives(a.name, kind, "artifacts", text)
		}
		if filepath.Base(name) != "report.txt" {
			_ = os.Remove(name) // The next attack writes its own.
		}
	}
}

// hiddenURIs returns the spellings of the URI of a plan that the tenant alone may read, as seen
// from the folders of the other one.
func (a *tenant) hiddenURIs() []string {
	own, other := filepath.Join(a.dir, "plans", "hidden.json"), filepath.Join(a.other.dir, "plans")
	at, escaped := a.w.plans.URL+"/"+a.other.name, "..%2f"+a.name
	return []string{
		"file://" + own, "file://" + other + "/../../" + a.name + "/plans/hidden.json", "file://" + other + "/%2e%2e/%2e%2e/" + a.name + "/plans/hidden.json",
		"file://" + other + "/..%2f..%2f" + a.name + "%2fplans%2fhidden.json", "file://" + other + "%2f..%2f..%2f" + a.name + "%2fplans%2fhidden.json",
		"file://" + other + "/link", "file://" + other + "/folder/hidden.json", "file://localhost" + own, "FILE://" + own, "file:" + own, "file://" + other + "/..;/..;/" + a.name + "/plans/hidden.json",
		`file://` + other + `\..\..\` + a.name + `\plans\hidden.json`, "file://" + other + "../" + a.name + "/plans/hidden.json",
		a.w.plans.URL + "/" + a.name + "/hidden.json", at + "/../" + a.name + "/hidden.json", at + "/" + escaped + "/hidden.json", at + "/%2e%2e/" + a.name + "/hidden.json",
		at + "%2f" + escaped + "/hidden.json", at + "/..%252f" + a.name + "/hidden.json", at + "/x?to=/" + a.name + "/hidden.json", at + "/x?to=" + a.w.plans.URL + "/" + a.name + "/hidden.json",
		at + "@" + strings.TrimPrefix(a.w.plans.URL, "http://") + "/" + a.name + "/hidden.json", at + ".evil/hidden.json", at + "/;/../../" + a.name + "/hidden.json",
		strings.ToUpper(at) + "/../" + a.name + "/hidden.json", at + "//../" + a.name + "/hidden.json",
	}
}

// stealPlan refers to a plan of the other tenant. A symbolic link in the tenant's own folder leads
// there.
func (a *tenant) stealPlan(kind string) {
	plans, others := filepath.Join(a.dir, "plans"), filepath.Join(a.other.dir, "plans")
	// They may be there.
	_ = os.Symlink(filepath.Join(others, "hidden.json"), filepath.Join(plans, "link"))
	_ = os.Symlink(others, filepath.Join(plans, "folder"))
	uri := a.text("uri")
	a.w.counted(kind, a.execute(kind, "{}", func(r *runlogv1.RequestRunRequest) {
		r.PlanRef = &runlogv1.PlanRef{Uri: uri, Sha256: a.text("sha256"), SchemaVersion: "v1.2", PlanId: "hidden", PlanVersion: "1"}
	}).status)
}

// secretRefs returns spellings of references to the secrets of the other tenant.
func (a *tenant) secretRefs() []string {
	own, other := strings.ToUpper(a.name), strings.ToUpper(a.other.name)
	return []string{
		"env:" + other + "_DB", "env:SECRET_" + other + "_DB", "env:../SECRET_" + other + "_DB", "env:_" + other + "_DB", "env:SECRET_" + own + "_DB/../SECRET_" + other + "_DB",
		"env:" + a.other.name + "/DB", "env:DB\u0000", "env:RUNLOG_TOKEN_OTHER", "env:RUNLOG_TOKEN_ACME", "env:*", "env:$SECRET_" + other + "_DB", "env:{{SECRET_" + other + "_DB}}",
		"env:{{{{SECRET_" + other + "_DB}}}}", "env:env:SECRET_" + other + "_DB", "ENV:DB", "Env:SECRET_" + other + "_DB",
		"file:../../" + a.other.name + "/" + environment + "/db", "file:/" + a.other.name + "/" + environment + "/db", "file:" + a.other.name + "/" + environment + "/db",
		"file:..%2f..%2f" + a.other.name + "%2f" + environment + "%2fdb", "file:....//" + a.other.name, "file:db/../../../" + a.other.name + "/" + environment + "/db", "file:link", "file:../" + environment + "/db",
		"file:" + filepath.Join(filepath.Dir(a.dir), "secrets", a.other.name, environment, "db"), `file:..\..\` + a.other.name + `\prod\db`,
		"vault:kv/../" + a.other.name + "/" + environment + "/db#password", "vault:kv/" + a.other.name + "/" + environment + "/db#password", "vault:kv/..%2f..%2f" + a.other.name + "%2fprod%2fdb#password",
		"vault:../kv/data/" + a.other.name + "/prod/db#password", "vault:kv/data/" + a.other.name + "/prod/db#password", "vault:kv/../../" + a.other.name + "/prod/db#password", "vault:kv//" + a.other.name + "/prod/db#password",
		"SECRET_" + other + "_DB", "{{env:" + other + "_DB}}", "${SECRET_" + other + "_DB}", a.other.name + ":env:DB", "env:DB@" + a.other.name,
	}
}

// stealSecret names a secret of the other tenant: as the value of a header, of a variable and of a
// file.
func (a *tenant) stealSecret(kind string) {
	refs := a.secretRefs()
	ref := refs[a.rng.IntN(len(refs))]
	// A symbolic link in the tenant's own folder of secrets leads to the other one's.
	folder := filepath.Join(filepath.Dir(a.dir), "secrets", a.name, environment)
	// It may be there.
	_ = os.Symlink(filepath.Join("..", "..", a.other.name, environment, "db"), filepath.Join(folder, "link"))
	listed := [][]string{{ref}, {"env:DB"}, {}}[a.rng.IntN(3)]
	quoted, err := json.Marshal(ref)
	if err != nil {
		panic(err)
	}
	into := filepath.Join(a.dir, "artifacts", "secret-of-other")
	a.w.counted(kind, a.execute(kind, a.plan(
		step("H", "http", fmt.Sprintf(`{"url":%q,"secretHeaders":{"X-Secret":{"ref":%s,"prefix":"Bearer "}}}`, a.sink.URL, quoted), listed...),
		step("C", "command", fmt.Sprintf(`{"argv":["printf '%%s' \"$X\" > \"$1\"; printf '%%s' \"$X\" | od -An -c; cat \"$F\"",%q],"shell":true,"secretEnv":{"X":%s},"secretFiles":{"F":%s}}`, into, quoted, quoted), listed...),
	)).status)
}

// template returns a text that looks as if a secret of the other tenant were put into it.
func (a *tenant) template() string {
	name := "SECRET_" + strings.ToUpper(a.other.name) + "_DB"
	list := []string{
		"{{env:" + name + "}}", "${" + name + "}", "$" + name, "{{secret \\\"env:" + name + "\\\"}}", "{{ .Secrets }}", "{{ .Env." + name + " }}", "{{`{{env:" + name + "}}`}}", "{{{{env:" + name + "}}}}",
		"${${" + name + "}}", "$(printenv " + name + ")", "`printenv " + name + "`", "%" + name + "%", "<%= ENV['" + name + "'] %>", "#{ENV['" + name + "']}", "{{steps.A.output}}", "${{ secrets." + name + " }}",
		"{{" + a.loot["run_id"][0] + ".A.output}}", "@" + filepath.Join(a.other.dir, "artifacts", "report.txt"), "file://" + filepath.Join(a.other.dir, "artifacts", "report.txt"),
	}
	return list[a.rng.IntN(len(list))]
}

// stealByTemplate writes templates where steps may have texts.
func (a *tenant) stealByTemplate(kind string) {
	text := a.template()
	a.w.counted(kind, a.execute(kind, a.plan(
		step("A", "noop", `{"is":"`+text+`"}`),
		step("H", "http", `{"url":"`+a.sink.URL+`/?of=`+strings.NewReplacer(" ", "+", "%", "%25", `\"`, "%22", "`", "%60").Replace(text)+`","headers":{"X-Text":"`+text+`"},"body":{"text":"`+text+`"}}`),
		step("C", "command", `{"argv":["printf","%s",  "`+text+`"],"env":{"X":"`+text+`"},"input":{"is":"`+text+`"}}`),
		step("S", "command", `{"argv":["env; eval echo \"$1\"","`+text+`"],"shell":true,"env":{"X":"`+text+`"}}`),
	)).status)
}

// dumps are scripts that look for what the worker has. A file of its user is not among it.
var dumps = []string{
	"env; set; export -p", "cat /proc/self/environ /proc/$PPID/environ 2>&1 | tr '\\0' '\\n'",
	"p=$$; while [ \"$p\" -gt 1 ] 2>/dev/null; do tr '\\0' '\\n' < /proc/$p/environ 2>&1; p=$(awk '/^PPid/{print $2}' /proc/$p/status); done",
	"p=$$; while [ \"$p\" -gt 1 ] 2>/dev/null; do tr '\\0' ' ' < /proc/$p/cmdline; ls -l /proc/$p/fd /proc/$p/cwd /proc/$p/root 2>&1 | grep -v socket; p=$(awk '/^PPid/{print $2}' /proc/$p/status); done",
	"p=$$; while [ \"$p\" -gt 1 ] 2>/dev/null; do for f in /proc/$p/fd/*; do [ -f \"$f\" ] && head -c 2000 \"$f\"; done 2>&1; p=$(awk '/^PPid/{print $2}' /proc/$p/status); done",
	"w=$(awk '/^PPid/{print $2}' /proc/$PPID/status); cat /proc/$w/maps /proc/$w/mem /proc/$w/auxv 2>&1 | head -c 3000",
	"echo $SECRET_ACME_DB $SECRET_UMBRELLA_DB $RUNLOG_TOKEN $VAULT_TOKEN; id; ls -la . .. 2>&1", "cat; cat /dev/stdin; cat <&3; cat <&4; cat <&5; cat <&6 2>&1",
}

// dump has commands print what they find.
func (a *tenant) dump(kind string) {
	script, err := json.Marshal(dumps[a.rng.IntN(len(dumps))] + " | head -c 7000; true")
	if err != nil {
		panic(err)
	}
	a.w.counted(kind, a.execute(kind, a.plan(
		step("S", "command", fmt.Sprintf(`{"argv":[%s],"shell":true}`, script)),
		step("A", "command", fmt.Sprintf(`{"argv":["/bin/sh","-c",%s]}`, script)),
		step("D", "command", fmt.Sprintf(`{"argv":["ls"],"dir":%q}`, []string{"../" + a.other.name, a.other.dir, "../../" + a.other.name}[a.rng.IntN(3)])),
	)).status)
}

// useQueue names queues of the other tenant, in the plan and in the request.
func (a *tenant) useQueue(kind string) {
	queues := []string{"tq-isolation-" + a.other.name + "-" + environment, "tq-isolation-" + a.other.name + "-" + environment + "-", "tq-control-" + a.other.name, "TQ-isolation-" + a.other.name + "-prod",
		a.text("queue"), "runner", "tq-isolation-" + a.name + "-" + environment, "tq-data-test"}
	queue := queues[a.rng.IntN(len(queues))]
	if a.rng.IntN(3) == 0 {
		a.w.counted(kind, a.execute(kind, a.plan(step("A", "noop", "{}")), func(r *runlogv1.RequestRunRequest) { r.Queue = a.text("queue") }).status)
		return
	}
	a.w.counted(kind, a.execute(kind, a.plan(fmt.Sprintf(`{"stepId":"A","type":"command","class":"isolation","dispatch":{"taskQueue":%q},"secretRefs":["env:DB"],"inputs":{"argv":["printenv","X"],"secretEnv":{"X":"env:DB"}}}`, queue))).status)
}

// useOtherRun refers to steps and outputs of runs of the other tenant.
func (a *tenant) useOtherRun(kind string) {
	run, other := a.text("run_id"), a.text("step_id")
	steps := []string{
		fmt.Sprintf(`{"stepId":"A","type":"noop","dependsOn":[%q]}`, run+"/"+other), fmt.Sprintf(`{"stepId":"A","type":"noop","when":{"step":%q,"equals":1}}`, run+"/"+other),
		fmt.Sprintf(`{"stepId":"A","type":"noop","inputs":{"from":%q,"runId":%q,"stepId":%q,"$ref":%q}}`, run, run, other, run+"#/steps/"+other),
		fmt.Sprintf(`{"stepId":%q,"type":"noop","inputs":{"upstream":%q}}`, run+"/"+other, run),
	}
	changes := []func(*runlogv1.RequestRunRequest){
		func(*runlogv1.RequestRunRequest) {},
		func(r *runlogv1.RequestRunRequest) { r.RerunOf = &run },
		func(r *runlogv1.RequestRunRequest) { r.RunId = run },
		func(r *runlogv1.RequestRunRequest) { r.RunRequestId = run },
		func(r *runlogv1.RequestRunRequest) { r.RunId, r.RunRequestId = run, run },
		func(r *runlogv1.RequestRunRequest) { r.TenantId = a.other.name },
	}
	a.w.counted(kind, a.execute(kind, a.plan(steps[a.rng.IntN(len(steps))]), changes[a.rng.IntN(len(changes))]).status)
}

// forgeRerun has its runner rerun a run of the other tenant, which a forged decision names. The
// steps have the ids of that run.
func (a *tenant) forgeRerun(kind string) {
	body := a.plan(step("A", "noop", "{}"), step("C", "noop", "{}"))
	later := func(r *runlogv1.RequestRunRequest) { r.NotBefore = timestamppb.New(time.Now().Add(time.Second)) }
	a.w.counted(kind, a.execute(kind, body, later).status)
}

// forge appends a decision to a run that no runner has yet.
func (a *tenant) forge(r *runlogv1.RequestRunRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e := a.event("RunQueued", r.PlanRef.GetPlanId())
	e.LogicalAttemptId = 2
	e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: fmt.Appendf(nil, `{"rerunOf":%q}`, a.text("run_id"))}
	if _, err := a.c.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: r.RunId, Events: []*runlogv1.EventWrite{e}}); err != nil {
		a.w.check.receives(a.name, "forged-rerun", "answer", []byte(err.Error()))
	}
}

// addresses returns URLs that no http step of the tenant may reach.
func (a *tenant) addresses() []string {
	at := a.w.node.Server.Addresses()
	port := a.other.sink.URL[strings.LastIndex(a.other.sink.URL, ":"):]
	last := a.other.sink.URL[len("http://127.0.0."):strings.LastIndex(a.other.sink.URL, ":")]
	return []string{
		a.other.sink.URL, "http://2130706433" + port, "http://127." + last + port, "http://0x7f00000" + last + port, "http://0177.0.0." + last + port, "http://[::ffff:127.0.0." + last + "]" + port,
		"http://localhost" + port, "http://0.0.0.0" + port, "http://[::1]" + port, "http://[::]" + port, "http://[::127.0.0." + last + "]" + port, "http://[64:ff9b::127.0.0." + last + "]" + port,
		"http://" + at.HTTP + "/v1/runs?tenantId=" + a.other.name, "http://" + at.Admin + "/debug/pprof/cmdline", "http://" + at.Admin + "/metrics", "http://" + at.GRPC, "http://" + at.Raft,
		a.other.runner.URL + "/api/runs", a.runner.URL + "/metrics", a.w.vault.URL + "/v1/kv/data/" + a.other.name + "/prod/db", a.w.plans.URL + "/" + a.other.name + "/hidden.json",
		"http://169.254.169.254/latest/meta-data", "http://user:pass@" + strings.TrimPrefix(a.other.sink.URL, "http://"), "file:///etc/passwd", "gopher://" + at.HTTP, "http:///" + a.other.sink.URL, "unix:///run/x",
		a.sink.URL + "@" + strings.TrimPrefix(a.other.sink.URL, "http://"), "http://127.0.0." + last + "." + port,
	}
}

// reach has http steps call addresses that are not the tenant's, also by redirects of its sink.
func (a *tenant) reach(kind string) {
	list := a.addresses()
	a.w.counted(kind, a.execute(kind, a.plan(a.get("A", list[a.rng.IntN(len(list))]), a.get("B", list[a.rng.IntN(len(list))]), a.get("C", list[a.rng.IntN(len(list))]))).status)
}

// redirected has the tenant's sink redirect its http steps.
func (a *tenant) redirected(kind string) {
	list := a.addresses()
	to := list[a.rng.IntN(len(list))]
	a.w.counted(kind, a.execute(kind, a.plan(
		a.get("A", a.sink.URL+"/?to="+to), a.get("B", a.sink.URL+"/?to="+a.sink.URL+"/?to="+to), a.get("C", a.sink.URL+"/?to=//"+strings.TrimPrefix(to, "http://")),
	)).status)
}

// get returns a step that sends the tenant's own secret along: the sink of the other one must not
// get it.
func (a *tenant) get(id, url string) string {
	text, err := json.Marshal(map[string]any{"url": url, "secretHeaders": map[string]any{"X-Own": map[string]string{"ref": "env:DB"}}})
	if err != nil {
		panic(err)
	}
	return step(id, "http", string(text), "env:DB")
}

// attestForeign attests a step of its own run with artifacts of the other tenant.
func (a *tenant) attestForeign(kind string) {
	as := []string{"Authorization", "Bearer " + a.tokens["writer"]}
	_, text := a.request(kind, "runner", "POST", a.runner.URL+"/api/runs", fmt.Sprintf(`{"manifest_id":%q,"initiated_by":"jed"}`, a.own.manifest), "Authorization", "Bearer "+a.tokens["worker"])
	var run struct {
		ID    string
		Steps []struct {
			StepRunID string `json:"step_run_id"`
		}
	}
	_ = json.Unmarshal(text, &run) // The next call has no such run then.
	_, text = a.request(kind, "runner", "GET", a.runner.URL+"/api/runs/"+run.ID+"?wait=8s", "", as...)
	if json.Unmarshal(text, &run) != nil || len(run.Steps) != 2 {
		a.w.counted(kind, "no run")
		return
	}
	by := []string{a.text("attested_by"), "token:" + a.names["writer"]}[a.rng.IntN(2)]
	body, err := json.Marshal(map[string]any{"attested_by": by, "outcome": "SUCCESS", "notes": a.template(), "artifacts": []any{map[string]any{"name": "y", "uri": a.text("uri"), "sha256": a.text("sha256")}}})
	if err != nil {
		panic(err)
	}
	status, _ := a.request(kind, "runner", "POST", a.runner.URL+"/api/runs/"+run.ID+"/steps/"+run.Steps[1].StepRunID+"/attest", string(body), as...)
	if status == http.StatusUnprocessableEntity || status == http.StatusForbidden {
		mine := fmt.Sprintf(`{"attested_by":%q,"outcome":"SUCCESS","artifacts":[]}`, "token:"+a.names["writer"])
		a.request(kind, "runner", "POST", a.runner.URL+"/api/runs/"+run.ID+"/steps/"+run.Steps[1].StepRunID+"/attest", mine, as...)
	}
	a.request(kind, "runner", "POST", a.runner.URL+"/api/runs/"+run.ID+"/resume", `{"initiated_by":"jed"}`, as...)
	a.ended(kind, run.ID)
	a.w.counted(kind, fmt.Sprint(status))
}
