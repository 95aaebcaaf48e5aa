package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.yaml.in/yaml/v3"

	"runlog/client/command/output"
)

// The secrets of a runner that has some of each kind.
const (
	ofEnv   = "environment-4711"
	ofFile  = "file-correct-horse"
	ofVault = "vault-battery-staple"
	ofRival = "rival-battery-staple"
	ofModel = "model-hunter2-key"
)

// surroundings are the servers that a runner needs: buckets, a web server of plans, a Vault, and a
// language model.
type surroundings struct {
	s3, plans, vault, model *httptest.Server
	secrets                 string // a directory

	mu    sync.Mutex
	files map[string]string // of the web server
	asked []string          // Authorization and text of calls of the model
}

func newSurroundings(t *testing.T) *surroundings {
	t.Helper()
	s := &surroundings{files: map[string]string{}, secrets: t.TempDir()}
	backend := s3mem.New()
	if err := backend.CreateBucket("acme"); err != nil {
		t.Fatal(err)
	}
	s.s3 = httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	s.plans = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		text, ok := s.files[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, text)
	}))
	s.vault = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Vault-Token") != "a-vault-token" || r.URL.Path != "/v1/kv/data/acme/prod/team/db" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, `{"data":{"data":{"password":"`+ofVault+`"},"metadata":{"version":3}}}`)
	}))
	s.model = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.asked = append(s.asked, r.Header.Get("Authorization")+" "+string(body))
		s.mu.Unlock()
		says := "the key is " + ofModel
		if strings.Contains(string(body), "leak") {
			says = "take gh" + "p_" + "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0eF2hJ4"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"model": "small-1", "choices": []any{map[string]any{"message": map[string]string{"content": says}}}})
	}))
	for _, server := range []*httptest.Server{s.s3, s.plans, s.vault, s.model} {
		t.Cleanup(server.Close)
	}
	for name, text := range map[string]string{"acme/prod/db": ofFile, "rival/prod/db": ofRival, "acme/prod-eu/db": ofRival, "db": ofRival} {
		path := filepath.Join(s.secrets, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// env are the variables of a runner.
func (s *surroundings) env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.s3.URL, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=aws-secret-access-key",
		"VAULT_ADDR=" + s.vault.URL, "VAULT_TOKEN=a-vault-token", "SECRET_ACME_DB=" + ofEnv, "SECRET_RIVAL_DB=" + ofRival, "LLM_KEY=" + ofModel, "RIVAL_DB=" + ofRival,
	}
}

// get returns an answer of the runner.
func (p *runnerProcess) get(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get(p.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err, string(text))
	}
	return string(text)
}

// TestRunnerStoresPLAN1: a runner has manifests in a bucket, and executes plans of a web server.
// Its steps have secrets of the environment, of files and of a Vault, and ask a language model with
// the runner's own key (ENG-7). Plans elsewhere, and variables that are not meant for plans, are
// out of reach. No secret is in an event or in the log.
func TestRunnerStoresPLAN1(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	a := startNode(t, t.TempDir())
	at := spawnRunner(t, a.GRPC, s.env(), "--store", "s3://acme/runner", "--plans", s.plans.URL+"/approved", "--secrets-dir", s.secrets,
		"--llm-url", s.model.URL+"/v1", "--llm-model", "small", "--llm-key", "env:LLM_KEY")
	p := programs{t: t, server: a.GRPC}

	manifest := write(t, `{"name": "model", "steps": [
		{"step_key": "ask", "executor": "llm", "input": {"messages": [{"role": "user", "content": "hello"}]}},
		{"step_key": "leak", "executor": "llm", "input": {"messages": [{"role": "user", "content": "leak"}]}}]}`)
	code, out, errs := p.runner("run", manifest, "--by", "jed", "--runner", at.url+"/")
	if code != int(output.ExitRunNotOK) || !strings.HasSuffix(strings.TrimSpace(out), " is error") || !strings.Contains(errs, "have failed: leak") {
		t.Fatalf("runner run: %d %s %s", code, out, errs)
	}
	_, events, _ := p.runlog("events", strings.Fields(out)[1], "-o", "json")
	if !strings.Contains(events, `"text":"the key is [secret]"`) || !strings.Contains(events, "LLM_POLICY_VIOLATION") {
		t.Errorf("the language model: %s", events)
	}
	s.mu.Lock()
	if len(s.asked) != 2 || !strings.HasPrefix(s.asked[0], "Bearer "+ofModel+` {"model":"small",`) {
		t.Errorf("the language model was asked: %q", s.asked)
	}
	s.mu.Unlock()

	all := events
	for _, tt := range []struct{ name, path, refs, status, has string }{
		{"secrets", "/approved/p.json", `"env:DB","file:db","vault:kv/team/db#password"`, "COMPLETED", `"text":"[secret]\n[secret]\n[secret]\n"`},
		{"variable", "/approved/p.json", `"env:LLM_KEY","env:DB","env:DB"`, "FAILED", "set the variable SECRET_ACME_LLM_KEY of the worker"},
		{"variable-of-another", "/approved/p.json", `"env:RIVAL_DB","env:DB","env:DB"`, "FAILED", "set the variable SECRET_ACME_RIVAL_DB of the worker"},
		{"of-another", "/approved/p.json", `"env:RIVAL_DB","file:../rival/prod/db","vault:kv/../rival/prod/db#password"`, "FAILED", "the reference is invalid"},
		{"elsewhere", "/other/p.json", `"env:DB","env:DB","env:DB"`, "FAILED", "PLAN_FETCH_FAILED"},
		{"missing", "/approved/none.json", `"env:DB","env:DB","env:DB"`, "FAILED", "PLAN_FETCH_FAILED"},
	} {
		refs := strings.Split(tt.refs, ",")
		plan := fmt.Sprintf(`{"schemaVersion":"v1.2","planId":%q,"planVersion":"1","steps":[{"stepId":"print","type":"command","secretRefs":[%s],
			"inputs":{"argv":["printenv","A","B","C"],"secretEnv":{"A":%s,"B":%s,"C":%s}}}]}`, tt.name, strings.Join(refs[:len(set(refs))], ","), refs[0], refs[1], refs[2])
		s.mu.Lock()
		if tt.name != "missing" {
			s.files[tt.path] = plan
		}
		s.mu.Unlock()
		code, _, errs := p.runlog("run", "request", "--tenant", "acme", "--project", "shop", "--environment", "prod", "--queue", "runner", "--engine", "runlog",
			"--plan", tt.name+"@1", "--plan-uri", s.plans.URL+tt.path, "--plan-sha256", hexSHA256(plan), "--plan-schema", "v1.2", "--id", tt.name, "--run", tt.name)
		if code != 0 {
			t.Fatalf("%s: %d %s", tt.name, code, errs)
		}
		_, _, _ = p.runlog("watch", tt.name, "--until-done", "--for", "60s")
		_, events, _ := p.runlog("events", tt.name, "-o", "json")
		_, shown, _ := p.runlog("snapshot", tt.name, "-o", "json")
		if !strings.Contains(shown, `"status":"`+tt.status+`"`) || !strings.Contains(events, tt.has) {
			t.Errorf("%s: want %s and %s:\n%s", tt.name, tt.status, tt.has, events)
		}
		all += events
	}
	all += at.Said.String()
	for _, hidden := range []string{ofEnv, ofFile, ofVault, ofModel, ofRival, "a-vault-token", "aws-secret-access-key"} {
		if strings.Contains(all, hidden) {
			t.Errorf("%q is in an event or in the log:\n%s", hidden, all)
		}
	}
	if code := at.Stop(t); code != 0 {
		t.Errorf("exit %d:\n%s", code, at.Said)
	}
}

// TestPublishedCapabilitiesENG1: a runner writes what it can do into its store, as its published
// adapterCapabilities.json has it. A runner with fewer executors says so.
func TestPublishedCapabilitiesENG1(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(filepath.Join("..", "..", "runner", "adapterCapabilities.json"))
	if err != nil {
		t.Fatal(err)
	}
	s, a := newSurroundings(t), startNode(t, t.TempDir())
	dir := t.TempDir()
	for _, flags := range [][]string{{"--llm-url", s.model.URL}, nil} {
		spawnRunner(t, a.GRPC, nil, append([]string{"--store", dir}, flags...)...)
		got, err := os.ReadFile(filepath.Join(dir, "adapterCapabilities.json"))
		if err != nil || flags != nil && string(got) != string(want) || strings.Contains(string(got), "executor:llm") != (flags != nil) {
			t.Errorf("%v: %v\n%s\nwant\n%s", flags, err, got, want)
		}
	}
}

// set returns the distinct ones of texts.
func set(texts []string) map[string]bool {
	all := map[string]bool{}
	for _, text := range texts {
		all[text] = true
	}
	return all
}

// TestRunnerMetricsATT7: the alert rules of a runner are about metrics that it exports, and each
// says what it means and what to do.
func TestRunnerMetricsATT7(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil || len(rules.Groups) != 2 || rules.Groups[1].Name != "runlog-runner" || len(rules.Groups[1].Rules) < 2 {
		t.Fatalf("%v: %+v", err, rules)
	}
	a := startNode(t, t.TempDir())
	got := spawnRunner(t, a.GRPC, nil, "--store", t.TempDir()).get(t, "/metrics")
	name := regexp.MustCompile(`\b(runlog|plan)_\w+`)
	for _, r := range rules.Groups[1].Rules {
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["remedy"] == "" {
			t.Errorf("%s: %+v", r.Alert, r)
		}
		metrics := name.FindAllString(r.Expr, -1)
		if len(metrics) == 0 {
			t.Errorf("%s is about no metric: %s", r.Alert, r.Expr)
		}
		for _, metric := range metrics {
			if !strings.Contains(got, "\n"+metric+`{environment="prod",project="shop",tenant="acme"} 0`) {
				t.Errorf("%s: no runner exports %s:\n%s", r.Alert, metric, got)
			}
		}
	}
}
