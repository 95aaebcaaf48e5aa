package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/client/command/output"
	"runlog/engine/program/programtest"
	"runlog/testbed/await"
)

// TestRunnerCommands: the commands of a runner say what its API answers, with every fault, and what
// to do if there is none.
func TestRunnerCommands(t *testing.T) {
	t.Parallel()
	var authorization, body string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		text, _ := io.ReadAll(r.Body)
		body = string(text)
		switch r.URL.Path {
		case "/api/manifests":
			fmt.Fprint(w, `{"id":"m"}`)
		case "/api/runs":
			fmt.Fprint(w, `{"id":"run-1","status":"running"}`)
		case "/api/runs/run-1/resume":
			fmt.Fprint(w, `{"id":"run-1","status":"success"}`)
		case "/api/runs/run-1":
			fmt.Fprint(w, `{"status":"waiting","steps":[{"step_run_id":"1","step_key":"A","status":"SUCCESS"},{"step_run_id":"2","step_key":"B","status":"WAITING_FOR_ATTESTATION"}]}`)
		case "/api/runs/run-5/resume":
			fmt.Fprint(w, `{"id":"run-5","status":"error"}`)
		case "/api/runs/run-5":
			fmt.Fprint(w, `{"steps":[{"step_run_id":"1","step_key":"A","status":"FAIL","error":{"code":"COMMAND_EXIT_3","message":"no rows"}},{"step_run_id":"2","step_key":"B","status":"SKIPPED"}]}`)
		case "/api/runs/run-6/resume":
			fmt.Fprint(w, `{"id":"run-6","status":"waiting"}`)
		case "/api/runs/run-6":
			fmt.Fprint(w, `{"steps":[]}`)
		case "/api/runs/slow/resume":
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
			}
		case "/api/runs/run-2/resume":
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"error":"the run is success: only a run that is waiting can be resumed"}`)
		case "/api/runs/run-3/resume":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"error":"2 faults","faults":[{"path":"/initiated_by","message":"is required"},{"path":"/x","message":"is unknown"}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer api.Close()
	manifest := filepath.Join(t.TempDir(), "m.json")
	if err := os.WriteFile(manifest, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		line string
		code output.ExitCode
		want string
	}{
		{"run " + manifest + " --by jed", output.ExitOK, "run run-1 is waiting"},
		{"run " + manifest + " --by jed", output.ExitOK, "step B waits for its attestation: POST " + api.URL + "/api/runs/run-1/steps/2/attest"},
		{"resume run-5 --by jed", output.ExitRunNotOK, "have failed: A (COMMAND_EXIT_3: no rows); \"runlog snapshot run-5\""},
		{"resume run-6 --by jed", output.ExitOK, "runlog-runner resume run-6 goes on"},
		{"resume slow --by jed --timeout 10ms", output.ExitTimeout, "no answer within 10ms"},
		{"resume run-1 --runner http://127.0.0.1:1 --by=", output.ExitUsage, "--by is required"},
		{"resume run-1 --by jed --runner 127.0.0.1:7430", output.ExitUsage, "write the URL of a runner"},
		{"resume run-1 --by jed -o json", output.ExitOK, `{"id":"run-1","status":"success"}`},
		{"resume run-2 --by jed", output.ExitRefused, "only a run that is waiting"},
		{"resume run-3 --by jed", output.ExitRefused, "/initiated_by is required; /x is unknown"},
		{"resume run-4 --by jed", output.ExitUnavailable, "is no runner: it says 404 Not Found"},
		{"resume run-1 --by jed --runner http://127.0.0.1:1", output.ExitUnavailable, "start one with runlog-runner serve"},
		{"resume run-1 --by jed --token secret-token --runner http://example.com", output.ExitUsage, "plain text"},
		{"run", output.ExitUsage, "takes the file of a manifest"},
		{"run " + manifest + ".none --by jed", output.ExitUsage, "no such file or directory; name the file of a manifest"},
	} {
		args := strings.Fields(tt.line)
		if !strings.Contains(tt.line, "--runner") {
			args = append(args, "--runner", api.URL)
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), testSession(&out, &errs), args)
		if code != tt.code || !strings.Contains(out.String()+errs.String(), tt.want) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", tt.line, code, tt.code, tt.want, out.String(), errs.String())
		}
	}
	var out, errs bytes.Buffer
	s := testSession(&out, &errs)
	s.Getenv = func(name string) string { return map[string]string{"USER": "ann"}[name] }
	if code := run(t.Context(), s, []string{"resume", "run-1", "--token", "secret-token", "--runner", api.URL}); code != output.ExitOK || authorization != "Bearer secret-token" || body != `{"initiated_by":"ann"}` {
		t.Errorf("exit %d, Authorization %q, body %s: %s", code, authorization, body, errs.String())
	}
	ended, end := context.WithCancel(t.Context())
	end()
	errs.Reset()
	if code := run(ended, testSession(&out, &errs), []string{"resume", "run-1", "--by", "jed", "--runner", api.URL}); code != output.ExitInterrupted || errs.String() != "runlog-runner: interrupted\n" {
		t.Errorf("after a signal: exit %d, %s", code, errs.String())
	}
}

// TestServeWithoutNode: a runner that reaches no node says so once, whatever number of its calls
// fail, and continues to try. Meanwhile SIGTERM ends it with 0.
func TestServeWithoutNode(t *testing.T) {
	t.Parallel()
	var said await.Words
	ctx, stop := context.WithCancel(await.Context(t))
	ended := make(chan struct{})
	code, args := output.ExitCode(-1), []string{"serve", "--listen", "127.0.0.1:0", "--store", t.TempDir(), "--tenant", "t", "--project", "p",
		"--environment", "e", "--executors", "http", "--server", programtest.Closed, "--log-level", "debug"}
	go func() {
		defer close(ended)
		code = run(ctx, testSession(io.Discard, &said), args)
	}()
	const tries = 20 // of its calls, which try each second at the most
	tried := said.Await(ended, await.Context(t).Done(), func(said string) bool { return strings.Count(said, "call failed; retrying") >= tries })
	stop()
	<-ended
	if warned := strings.Count(said.String(), "level=WARN"); !tried || warned != 1 || code != output.ExitOK {
		t.Errorf("exit %d, %d warnings:\n%s", code, warned, said.String())
	}
}

// TestServeEndsAtItsStore: a runner that gets a signal while its store does not answer exits with
// 0, as help says, and does not blame the store.
func TestServeEndsAtItsStore(t *testing.T) {
	asked, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(asked) })
		<-end
	}))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(end) })
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": silent.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"} {
		t.Setenv(name, value)
	}
	ctx, stop := context.WithCancel(await.Context(t))
	go func() {
		select {
		case <-asked:
		case <-ctx.Done():
		}
		stop()
	}()
	var said await.Words
	code := run(ctx, testSession(io.Discard, &said), []string{"serve", "--listen", "127.0.0.1:0", "--store", "s3://bucket/x", "--tenant", "t",
		"--project", "p", "--environment", "e", "--executors", "http", "--server", programtest.Closed})
	if code != output.ExitOK || strings.Contains(said.String(), "cannot be written") {
		t.Errorf("exit %d:\n%s", code, said.String())
	}
}

// TestHelp shows what users see: the commands, and the flags of a runner.
func TestHelp(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"help": {"--help"}, "serve-help": {"serve", "--help"}} {
		var out, errs bytes.Buffer
		code := run(t.Context(), testSession(&out, &errs), args)
		got := fmt.Sprintf("$ runlog-runner %s\n%s--- exit %d\n", strings.Join(args, " "), out.String()+errs.String(), code)
		path := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if want, err := os.ReadFile(path); err != nil || got != string(want) {
			t.Errorf("%s differs (go test -update rewrites it): %v\ngot:\n%s\nwant:\n%s", path, err, got, want)
		}
	}
}

// TestRunnerServeRefuses: a runner does not start with what its runs could not use, and says what
// to do. It repeats no secret.
func TestRunnerServeRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte(`{"maxChars": 1, "secret": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const scope = " --tenant t --project p --environment e"
	full := "--store " + dir + scope
	for _, tt := range []struct {
		flags string
		env   map[string]string
		code  output.ExitCode
		want  string
	}{
		{"", nil, output.ExitUsage, "--store is required"},
		{"--store d --tenant t --project p", nil, output.ExitUsage, "--environment is required"},
		{full + " --listen 0.0.0.0:0", nil, output.ExitUsage, "address of loopback"},
		{full + " --listen example.com:1", nil, output.ExitUsage, "address of loopback"},
		{full + " --log-level loud", nil, output.ExitUsage, "--log-level"},
		{full + " --max 101", nil, output.ExitUsage, "--max is 101"},
		{full + " --lease-ttl 1ms", nil, output.ExitUsage, "--lease-ttl is 1ms"},
		{full + " --plans " + dir + "/none", nil, output.ExitUsage, "is no directory"},
		{"--store ftp:x" + scope, nil, output.ExitUsage, "neither a URI"},
		{"--store https://example.com/x" + scope, nil, output.ExitUsage, "cannot be written: name a directory, or s3://"},
		{"--store gs://bucket/x" + scope, nil, output.ExitUsage, "a URI of file, http, https, s3"},
		{"--store s3://key:hunter2@bucket/x" + scope, nil, output.ExitUsage, "remove them"},
		{"--store " + file + "/x" + scope, nil, output.ExitUsage, "name a directory that this user can write"},
		{full + " --plans http://example.com/?x=hunter2", nil, output.ExitUsage, "it has a query"},
		{full + " --plans=", nil, output.ExitUsage, "--plans is empty"},
		{full + " --secrets-dir " + file, nil, output.ExitUsage, "is no directory"},
		{full + " --secret-env acme", nil, output.ExitUsage, `--secret-env has "acme": write TENANT=PREFIX`},
		{full + " --secret-env acme=A_,acme=B_", nil, output.ExitUsage, "once for each tenant"},
		{full + " --secret-env acme=SECRET_,rival=SECRET_RIVAL_", nil, output.ExitUsage, "the prefix SECRET_RIVAL_ begins with SECRET_"},
		{full + " --secret-env acme=", nil, output.ExitUsage, "is no name of a variable"},
		{full + " --default-executor llm", nil, output.ExitUsage, "is not among the executors of this runner"},
		{full + " --approved-plans-only", nil, output.ExitUsage, "needs --plans"},
		{full + " --grace 2h", nil, output.ExitUsage, "--grace is 2h0m0s"},
		{full + " --executors shell", nil, output.ExitUsage, "name noop, command, http and llm"},
		{full + " --executors=", nil, output.ExitUsage, "--executors is empty"},
		{full + " --executors llm", nil, output.ExitUsage, "need --llm-url"},
		{full + " --executors http --llm-url https://llm.example", nil, output.ExitUsage, "need llm in --executors"},
		{full + " --http-networks 10.1.2.3/16", nil, output.ExitUsage, "which is no network"},
		{full + " --executors command --http-networks 10.1.0.0/16", nil, output.ExitUsage, "needs http in --executors"},
		{full + " --executors http --command-env PATH", nil, output.ExitUsage, "needs command in --executors"},
		{full + " --llm-model small", nil, output.ExitUsage, "need --llm-url"},
		{full + " --llm-url llm.example", nil, output.ExitUsage, "--llm-url is no address"},
		{full + " --llm-url https://x:hunter2@llm.example", nil, output.ExitUsage, "--llm-key names the key"},
		{full + " --llm-url https://llm.example --llm-key hunter2", nil, output.ExitUsage, "is the reference of a secret"},
		{full + " --llm-url https://llm.example --llm-key env:KEY", nil, output.ExitUsage, "set the variable KEY"},
		{full + " --llm-url https://llm.example --llm-policy " + file, nil, output.ExitUsage, `unknown field "secret"`},
		{full + " --llm-url https://llm.example --llm-policy " + dir + "/none", nil, output.ExitUsage, "no such file"},
		{full, map[string]string{"VAULT_ADDR": "http://10.0.0.1:8200", "VAULT_TOKEN": "hunter2"}, output.ExitUsage, "VAULT_ADDR: "},
		{full, map[string]string{"VAULT_ADDR": "https://vault.example"}, output.ExitUsage, "set VAULT_TOKEN"},
		{full, map[string]string{"VAULT_ADDR": "https://vault.example", "VAULT_TOKEN": "hunter2", "VAULT_CACERT": file}, output.ExitUsage, "has no certificate"},
	} {
		var out, errs bytes.Buffer
		s := testSession(&out, &errs)
		s.Getenv = func(name string) string { return tt.env[name] }
		code := run(t.Context(), s, append([]string{"serve"}, strings.Fields(tt.flags)...))
		if text := out.String() + errs.String(); code != tt.code || !strings.Contains(text, tt.want) || strings.Contains(text, "hunter2") {
			t.Errorf("%s %v: exit %d, want %d and %q:\n%s", tt.flags, tt.env, code, tt.code, tt.want, text)
		}
	}
}

// TestRunnerStoreFails: a store that cannot be written is found at the start, with its remedy.
func TestRunnerStoreFails(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	for flags, want := range map[string]struct {
		env  []string
		code output.ExitCode
		text string
	}{
		"--store s3://none/x": {s.env(), output.ExitUsage, "check the bucket, AWS_ENDPOINT_URL"},
		"--store s3://acme/y": {append(s.env(), "AWS_ENDPOINT_URL=http://127.0.0.1:1"), output.ExitUnavailable, "check the bucket, AWS_ENDPOINT_URL"},
	} {
		cmd := programtest.Command(append([]string{"serve", "--listen", "127.0.0.1:0", "--tenant", "acme", "--project", "p", "--environment", "e"}, strings.Fields(flags)...)...)
		cmd.Env = append(cmd.Env, want.env...)
		text, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != int(want.code) || !strings.Contains(string(text), want.text) || strings.Contains(string(text), "aws-secret") {
			t.Errorf("%s: exit %d, %v: %s", flags, code, err, text)
		}
	}
}
