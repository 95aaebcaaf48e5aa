package rivals

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

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
	"runner-of-other":    (*tenant).callRunner,
	"runner-of-own":      (*tenant).callOwnRunner,
	"gateway":            (*tenant).callGateway,
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
