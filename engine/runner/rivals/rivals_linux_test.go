package rivals

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/seed"
)

var duration = flag.Duration("rivals.time", 0, "how long the tenants attack each other; 0: each attack once by each of them")

// attacks are the kinds of attacks, but for the methods of the API: each of those is a kind too.
var attacks = map[string]func(a *tenant, kind string){
	"plan-secret":        (*tenant).stealSecret,
	"plan-template":      (*tenant).stealByTemplate,
	"plan-command":       (*tenant).dump,
	"plan-queue":         (*tenant).useQueue,
	"plan-uri":           (*tenant).stealPlan,
	"plan-other-run":     (*tenant).useOtherRun,
	"plan-http":          (*tenant).reach,
	"plan-http-redirect": (*tenant).redirected,
	"attest-foreign":     (*tenant).attestForeign,
	"forged-rerun":       (*tenant).forgeRerun,
	"runner-of-other":    (*tenant).callRunner,
	"runner-of-own":      (*tenant).callOwnRunner,
	"gateway":            (*tenant).callGateway,
	"gateway-write":      (*tenant).writeByGateway,
	"watch-ticket":       (*tenant).useTicket,
	"admin-listener":     (*tenant).callAdmin,
}

// TestRivalsSEC4ENG7: two tenants attack each other by plans, the API of the node and those of the
// runners, in an order from a seed. Neither receives a byte of the other one, and neither changes
// what the other one has (SEC-4, SEC-9, ENG-7, PLAN-1).
func TestRivalsSEC4ENG7(t *testing.T) {
	s := seed.New(t)
	t.Logf("%s=%d", seed.Variable, s)
	w := newWorld(t, s)
	kinds := slices.Sorted(maps.Keys(attacks))
	for _, m := range methods() {
		kinds = append(kinds, string(m.Name()))
	}
	ctx := t.Context()
	if *duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *duration)
		defer cancel()
	}
	var attacking sync.WaitGroup
	for _, a := range w.tenants {
		attacking.Go(func() { a.attack(ctx, kinds) })
	}
	attacking.Wait()
	for _, a := range w.tenants {
		a.wantUntouched(t)
	}
	w.report(t, kinds)
}

// TestPlantedSEC4ENG7: a mark of the other tenant that is put where a leak would be is found there.
func TestPlantedSEC4ENG7(t *testing.T) {
	w := newWorld(t, seed.New(t))
	a := w.tenants[0]
	if len(w.check.leaks) != 0 {
		t.Errorf("the tenants have leaks before: %q", w.check.leaks)
	}
	w.check.strict = true
	mark := a.other.own.secret["file"]
	file := filepath.Join(a.dir, "artifacts", "planted")
	done := a.execute("planted", a.plan(
		step("A", "noop", fmt.Sprintf(`{"is":%q}`, mark)),
		step("B", "command", fmt.Sprintf(`{"argv":["echo %s > %s"],"shell":true}`, mark, file)),
		step("C", "http", fmt.Sprintf(`{"url":%q,"headers":{"X-Is":%q}}`, a.sink.URL, mark))),
		func(r *runlogv1.RequestRunRequest) {
			r.Labels = map[string]string{"is": mark}
			r.RunId = "planted-" + mark
		})
	for _, m := range methods() {
		if m.Name() == "GetRun" {
			a.invoke("planted", "reader", m, &runlogv1.GetRunRequest{RunId: done.run})
		}
	}
	at := w.node.Server.Addresses()
	a.request("planted", "gateway", "GET", "http://"+at.HTTP+"/v1/runs/"+done.run, "", "Authorization", "Bearer "+a.tokens["reader"])
	if _, err := a.log.Write([]byte("planted=" + mark)); err != nil {
		t.Error(err)
	}
	for _, place := range []string{"answer", "events", "snapshot", "sink", "runner", "artifacts", "log of the runner", "gateway"} {
		if !slices.ContainsFunc(w.check.leaks, func(leak string) bool { return strings.Contains(leak, mark) && strings.Contains(leak, "place "+place) }) {
			t.Errorf("the checker has not found the mark at the place %s; run %+v", place, done)
		}
	}
}

// attack tries each kind, in an order that is drawn, and then again until ctx ends.
func (a *tenant) attack(ctx context.Context, kinds []string) {
	all := map[string]int{}
	for i, m := range methods() {
		all[string(m.Name())] = i
	}
	for round := 0; round == 0 || *duration > 0; round++ {
		for _, n := range a.rng.Perm(len(kinds)) {
			if round > 0 && ctx.Err() != nil {
				return
			}
			kind := kinds[n]
			if by := attacks[kind]; by != nil {
				by(a, kind)
			} else {
				a.call(kind, methods()[all[kind]])
			}
		}
		a.renew(a.w.t)
	}
}

// report logs what was tried, and fails the test for each leak.
func (w *world) report(t *testing.T, kinds []string) {
	t.Helper()
	for _, kind := range kinds {
		sum, answers := 0, []string{}
		for _, answer := range slices.Sorted(maps.Keys(w.counts[kind])) {
			sum += w.counts[kind][answer]
			answers = append(answers, fmt.Sprintf("%s: %d", answer, w.counts[kind][answer]))
		}
		t.Logf("%-24s %6d  %s", kind, sum, strings.Join(answers, ", "))
		if sum == 0 {
			t.Errorf("nobody has tried %s", kind)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(w.check.looked)) {
		t.Logf("checked: %-24s %6d", place, w.check.looked[place])
	}
	for _, place := range []string{"answer", "events", "snapshot", "sink", "runner", "artifacts", "log of the runner", "gateway", "admin", "metrics", "metrics of the node"} {
		if w.check.looked[place] == 0 {
			t.Errorf("the checker has seen nothing at the place %s", place)
		}
	}
	for _, leak := range w.check.leaks {
		t.Errorf("LEAK: %s", leak)
	}
}

// callRunner calls the API of the other tenant's runner with its own tokens, and without one.
func (a *tenant) callRunner(kind string) { a.callAPI(kind, a.other.runner.URL) }

// callOwnRunner asks its own runner about the runs of the other tenant.
func (a *tenant) callOwnRunner(kind string) { a.callAPI(kind, a.runner.URL) }

func (a *tenant) callAPI(kind, runnerURL string) {
	run, manifest := url.PathEscape(a.text("run_id")), a.other.own.manifest
	if runnerURL == a.runner.URL {
		manifest = "../" + manifest
	}
	calls := [][3]string{
		{"GET", "/api/runs", ""}, {"GET", "/api/runs?page_token=" + url.QueryEscape(a.text("page_token")), ""}, {"GET", "/api/runs?manifest_id=" + url.QueryEscape(manifest), ""},
		{"GET", "/api/runs/" + run, ""}, {"GET", "/api/runs/" + run + "?wait=1s", ""}, {"GET", "/api/manifests", ""}, {"GET", "/api/manifests/" + url.PathEscape(manifest), ""},
		{"GET", "/api/manifests/" + url.PathEscape("../../../"+a.other.name+"/store/manifests/"+manifest), ""}, {"GET", "/metrics", ""},
		{"POST", "/api/runs", fmt.Sprintf(`{"manifest_id":%q,"initiated_by":"jed"}`, manifest)}, {"POST", "/api/runs/" + run + "/resume", `{"initiated_by":"jed"}`},
		{"POST", "/api/runs/" + run + "/rerun", `{"initiated_by":"jed"}`}, {"POST", "/api/runs/" + run + "/steps/" + a.other.own.stepRun + "/attest", `{"attested_by":"jed","outcome":"SUCCESS","artifacts":[]}`},
		{"POST", "/api/manifests", fmt.Sprintf(`{"name":%q,"steps":[{"step_key":"A","executor":"noop","input":{"is":%q}}]}`, a.own.worker, a.own.worker)},
	}
	for _, call := range calls {
		path, _, _ := strings.Cut(call[1], "?")
		place := "runner"
		if path == "/metrics" {
			place = "metrics"
		}
		path = strings.NewReplacer(run, "RUN", url.PathEscape(manifest), "MANIFEST", a.other.own.stepRun, "STEP", a.other.name, "OTHER").Replace(path)
		answers := call[0] + " " + path
		for _, token := range []string{"", a.tokens["writer"], a.tokens["reader"], a.tokens["worker"], a.tokens["writer"] + "x"} {
			var header []string
			if token != "" {
				header = []string{"Authorization", "Bearer " + token}
			}
			status, _ := a.request(kind, place, call[0], runnerURL+call[1], call[2], header...)
			answers += fmt.Sprint(" ", status)
		}
		a.w.counted(kind, answers)
	}
}

// callGateway calls the HTTP API of the node about runs of the other tenant, by paths and queries
// that gRPC does not have.
func (a *tenant) callGateway(kind string) {
	run, other := url.PathEscape(a.text("run_id")), a.other.name
	paths := []string{
		"/v1/runs/" + run, "/v1/runs/" + run + "/events", "/v1/runs/" + run + "/events:read", "/v1/runs/" + run + "/snapshot", "/v1/runs/" + run + ":watch", "/v1/runs/" + url.PathEscape(run) + "/events",
		"/v1/runs?tenantId=" + other, "/v1/runs?tenantId=" + a.name + "&tenantId=" + other, "/v1/runs?tenantId=" + other + "&tenantId=" + a.name, "/v1/runs?tenant_id=" + other, "/v1/runs?tenantId=&tenant_id=" + other, "/v1/runs?tenantId=%2A",
		"/v1/runs?pageToken=" + url.QueryEscape(a.text("page_token")), "/v1/runs?tenantId=" + other + "&pageToken=" + url.QueryEscape(a.text("page_token")), "/v1/runs:watch?tenantId=" + other, "/v1/runs:watch?resumeToken=" + url.QueryEscape(a.text("resume_token")),
		"/v1/runs:watch?includeExisting=true&view=EVENT", "/v1/queues?tenantId=" + other, "/v1/queues:runs?tenantId=" + other + "&projectId=" + project + "&environmentId=" + environment + "&queue=" + a.text("queue"),
		"/v1/subscriptions?tenantId=" + other, "/v1/subscriptions/" + a.text("subscription_id") + "?tenantId=" + other, "/v1/subscriptions/" + a.text("subscription_id"), "/v1/tenants/" + other + "/limits", "/v1/tokens", "/v1/cluster", "/v1/whoami",
		"/v1/audit/runs/" + run + ":verify", "/v1/audit/runs/" + run + ":prove", "/v1/audit/events?tenantId=" + other + "&from=2020-01-01T00:00:00Z&to=2020-01-01T01:00:00Z", "/v1/audit/events:export?tenantId=" + other + "&from=-1h",
		"/v1/runs/..%2f" + run, "/v1/runs/%2e%2e/runs/" + run, "/v1/runs/x/../" + run + "/snapshot", "//v1/runs/" + run, "/v1/runs/" + run + ";tenantId=" + other, "/v1/runs/" + run + "%00", "/metrics", "/debug/vars", "/openapi.json", "/ui/", "/",
	}
	for _, path := range paths {
		answers := ""
		for _, what := range []string{"writer", "reader"} {
			status, _ := a.request(kind, "gateway", "GET", "http://"+a.w.node.Server.Addresses().HTTP+path, "", "Authorization", "Bearer "+a.tokens[what])
			answers += fmt.Sprint(" ", status)
		}
		a.w.counted(kind, strings.TrimSpace(answers))
	}
}

// writeByGateway sends bodies about a run of the other tenant to paths of its own runs, and the
// other way about.
func (a *tenant) writeByGateway(kind string) {
	own, foreign := url.PathEscape(a.own.leased), url.PathEscape(a.text("run_id"))
	bare := fmt.Sprintf(`"eventType":"Noted","tenantId":%q,"projectId":"shop","environmentId":"prod","planId":%q,"planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"`,
		a.name, a.text("plan_id"))
	event, fence := "{"+bare+`,"runId":"`+foreign+`"}`, a.text("fence")
	for _, call := range [][3]string{
		{"POST", "/v1/runs/" + foreign + "/events:append", `{"runId":"` + own + `","events":[` + event + `]}`},
		{"POST", "/v1/runs/" + own + "/events:append", `{"runId":"` + foreign + `","events":[` + event + `]}`},
		{"POST", "/v1/runs/" + own + "/events:append?runId=" + foreign, `{"events":[` + event + `]}`},
		{"POST", "/v1/events:batchAppend", `{"requests":[{"runId":"` + foreign + `","events":[` + event + `]}]}`},
		{"POST", "/v1/runs/" + foreign + "/events:append", `{"events":[{` + bare + `}]}`}, {"POST", "/v1/runs/" + foreign + "/events:append", `{"fence":"` + fence + `","events":[{` + bare + `}]}`},
		{"POST", "/v1/runs/" + foreign + ":signal", `{"signalId":"x","signalType":"CANCEL"}`}, {"POST", "/v1/runs/" + foreign + ":signal", `{"signalId":"y","signalType":"SKIP_STEP","stepId":"B"}`},
		{"POST", "/v1/runs/" + foreign + ":signal", `{"runId":"` + own + `","signalId":"x","signalType":"CANCEL"}`},
		{"POST", "/v1/runs/" + foreign + ":signal?tenantId=" + a.name, `{"signalId":"x","signalType":"CANCEL"}`},
		{"POST", "/v1/runs/" + foreign + "/lease:renew", `{"fence":"` + fence + `"}`},
		{"POST", "/v1/runs/" + foreign + "/lease:release", `{"fence":"` + fence + `","outcome":"STARTED"}`},
		{"POST", "/v1/runs/" + foreign + ":cancelQueued", `{}`}, {"POST", "/v1/runs/" + foreign + ":requeue", `{}`}, {"POST", "/v1/runs/" + foreign + ":reprioritize", `{"priority":9}`},
		{"POST", "/v1/runs/" + foreign + "/steps/B:attest", `{"outcome":"SUCCESS","logicalAttemptId":1}`},
		{"PATCH", "/v1/runs/" + foreign + "?updateMask=labels", `{"labels":{"owner":"` + a.name + `"}}`},
		{"POST", "/v1/runs/" + foreign + ":setEngineRunRef", `{"engineRunRef":"taken"}`}, {"POST", "/v1/runs/" + foreign + ":project", `{}`},
		{"POST", "/v1/subscriptions/" + a.text("subscription_id") + ":ack?tenantId=" + a.name, `{"tenantId":"` + a.other.name + `","deliveryIds":["` + a.text("delivery_ids") + `"]}`},
		{"POST", "/v1/subscriptions/" + a.text("subscription_id") + ":pull?tenantId=" + a.other.name, `{"tenantId":"` + a.name + `","max":10}`},
		{"POST", "/v1/subscriptions/" + a.text("subscription_id") + ":seek", `{"tenantId":"` + a.other.name + `","to":{"beginning":true}}`},
		{"DELETE", "/v1/subscriptions/" + a.text("subscription_id") + "?tenantId=" + a.other.name, ""},
		{"PUT", "/v1/tenants/" + a.other.name + "/limits", `{"limits":{}}`}, {"POST", "/v1/tokens", `{"name":"x","tenants":["*"],"roles":["ADMIN"]}`},
	} {
		answers := ""
		for _, what := range []string{"writer", "worker"} {
			status, _ := a.request(kind, "gateway", call[0], "http://"+a.w.node.Server.Addresses().HTTP+call[1], call[2], "Authorization", "Bearer "+a.tokens[what])
			answers += fmt.Sprint(" ", status)
		}
		a.w.counted(kind, call[0]+" "+strings.NewReplacer(own, "OWN", foreign, "RUN", a.own.subscription, "SUB", a.name, "OWNER", a.other.name, "OTHER").Replace(marked.ReplaceAllString(call[1], "MARK"))+answers)
	}
}

// useTicket watches runs of the other tenant with a ticket of its own.
func (a *tenant) useTicket(kind string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	run, at := url.PathEscape(a.text("run_id")), "http://"+a.w.node.Server.Addresses().HTTP
	for _, path := range []string{"/v1/runs/" + run + ":watch?", "/v1/runs:watch?includeExisting=true", "/v1/runs:watch?includeExisting=true&tenantId=" + a.other.name, "/v1/runs/" + run + "?"} {
		ticket, err := a.c.CreateWatchTicket(ctx) // One is for one watch.
		if err != nil {
			a.w.t.Error(err)
			return
		}
		status, _ := a.request(kind, "gateway", "GET", at+path+"&ticket="+url.QueryEscape(ticket.GetTicket()), "")
		a.w.counted(kind, strings.ReplaceAll(path, run, "RUN")+fmt.Sprint(" ", status))
	}
}

// callAdmin calls the admin listener of the node: imports, profiles, metrics.
func (a *tenant) callAdmin(kind string) {
	run := a.text("run_id")
	body := fmt.Sprintf(`{"run":{"runId":%q,"tenantId":%q,"projectId":"shop","environmentId":"prod"}}`, run, a.other.name)
	calls := [][2]string{
		{"GET", "/metrics"}, {"GET", "/debug/pprof/cmdline"}, {"GET", "/debug/pprof/heap"}, {"GET", "/debug/pprof/goroutine?debug=2"}, {"POST", "/import"}, {"POST", "/projection/rebuild"}, {"GET", "/healthz"}, {"GET", "/readyz"}, {"GET", "/"},
		{"GET", "/export?runId="},
	}
	for _, call := range calls {
		answers, place := call[0]+" "+call[1], "admin"
		if call[1] == "/metrics" {
			place = "metrics of the node"
		}
		for _, token := range []string{"Bearer " + a.tokens["writer"], "Bearer " + a.tokens["reader"], "none"} {
			status, _ := a.request(kind, place, call[0], "http://"+a.w.node.Server.Addresses().Admin+call[1], body, "Authorization", token)
			answers += fmt.Sprint(" ", status)
		}
		a.w.counted(kind, answers)
	}
	a.request(kind, "metrics", "GET", a.runner.URL+"/metrics", "", "Authorization", "Bearer "+a.tokens["reader"])
}
