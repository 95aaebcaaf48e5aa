package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"runlog/client/command/output"
	"runlog/engine/program/programtest"
)

// TestExecutorsENG7: a runner whose plans come from callers with tokens executes nothing but noop,
// unless a flag names more. A step of another executor is refused, and the reason says so. A
// command gets the variables that a flag names, and no others, and reads none of the runner.
func TestExecutorsENG7(t *testing.T) {
	t.Parallel()
	const prints = `{"name": "m", "steps": [{"step_key": "A", "executor": "command", "input": {"argv": ["sh", "-c",
		"env; cat /proc/$PPID/environ /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/environ || true"]}}]}`
	token := filepath.Join(t.TempDir(), "token")
	closed := startNode(t, t.TempDir(), "RUNLOG_ADMIN_TOKEN_FILE="+token)
	open := startNode(t, t.TempDir())
	withToken := []string{"RUNLOG_TOKEN_FILE=" + token, "HOME=/of-the-runner", "LANG=of-the-runner", "PATH=" + os.Getenv("PATH")}
	for _, tt := range []struct {
		name, node string
		env, flags []string
		want       []string
		never      string
	}{
		{"by default", closed.GRPC, withToken, nil, []string{`this engine cannot execute it; it can do [\"compute\" \"executor:noop\" \"onFailure:WAIT\"]`}, "executor:command"},
		{"http alone", closed.GRPC, withToken, []string{"--executors", "http"}, []string{`it can do [\"compute\" \"executor:http\" \"executor:noop\" \"onFailure:WAIT\"]`}, "executor:command"},
		{"command", closed.GRPC, withToken, []string{"--executors", "command"}, []string{`"success"`, "RUNLOG_STEP_ID=A"}, "of-the-runner"},
		{"its variables", closed.GRPC, withToken, []string{"--executors", "command", "--command-env", "LANG"}, []string{"LANG=of-the-runner"}, "HOME="},
		{"an address of the node", open.GRPC, nil, nil, []string{`HTTP_ADDRESS_REFUSED`, "a loopback address"}, "StepCompleted"},
		{"without access control", open.GRPC, nil, nil, []string{`"success"`, "RUNLOG_STEP_ID=A"}, "HOME="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at := spawnRunner(t, tt.node, tt.env, append([]string{"--store", t.TempDir(), "--queue", strings.ReplaceAll(tt.name, " ", "-")}, tt.flags...)...)
			call := func(method, path, body string) string {
				req, err := http.NewRequestWithContext(t.Context(), method, at.url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				if text, err := os.ReadFile(token); err == nil && tt.env != nil {
					req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(text)))
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				return string(text)
			}
			manifest := prints
			if tt.name == "an address of the node" {
				manifest = `{"name": "m", "steps": [{"step_key": "A", "executor": "http", "input": {"url": "http://` + open.Admin + `/debug/pprof/cmdline"}}]}`
			}
			said := call("POST", "/api/manifests", manifest)
			if _, id, ok := strings.Cut(said, `{"id":"`); ok {
				id, _, _ = strings.Cut(id, `"`)
				said += call("POST", "/api/runs", `{"manifest_id":"`+id+`","initiated_by":"jed"}`)
				_, run, _ := strings.Cut(said, "}\n{\"id\":\"")
				run, _, _ = strings.Cut(run, `"`)
				said += call("GET", "/api/runs/"+run+"?wait=1h", "")
				p := programs{t: t, server: tt.node}
				var flags []string
				if tt.env != nil {
					flags = []string{"--token-file", token}
				}
				_, events, errs := p.runlog(append([]string{"events", run, "-o", "json"}, flags...)...)
				said += events + errs
			}
			for _, want := range tt.want {
				if !strings.Contains(said, want) {
					t.Errorf("want %s in %s", want, said)
				}
			}
			if strings.Contains(said, tt.never) {
				t.Errorf("%s is in %s", tt.never, said)
			}
		})
	}
}

// TestRunnerRolesSEC3: a runner does not start without the roles that it needs, and names them. The
// documented ones are enough.
func TestRunnerRolesSEC3(t *testing.T) {
	t.Parallel()
	admin := filepath.Join(t.TempDir(), "token")
	node := startNode(t, t.TempDir(), "RUNLOG_ADMIN_TOKEN_FILE="+admin)
	p := programs{t: t, server: node.GRPC}
	for i, tt := range []struct {
		roles []string
		want  string // of the refusal
	}{
		{[]string{"producer", "operator"}, `lacks the roles reader in the tenant acme`},
		{[]string{"reader"}, `lacks the roles producer in the tenant acme`},
		{[]string{"operator"}, `lacks the roles producer, reader in the tenant acme`},
		{[]string{"producer", "reader"}, ""},
	} {
		args := []string{"token", "create", "runner-" + strconv.Itoa(i), "--tenant", "acme", "--token-file", admin}
		for _, role := range tt.roles {
			args = append(args, "--role", role)
		}
		code, token, errs := p.runlog(args...)
		if code != 0 {
			t.Fatalf("%v: %d %s", tt.roles, code, errs)
		}
		env := []string{"RUNLOG_TOKEN=" + strings.TrimSpace(token)}
		if tt.want == "" {
			spawnRunner(t, node.GRPC, env, "--store", t.TempDir())
			continue
		}
		cmd := programtest.Command("serve", "--listen", "127.0.0.1:0", "--store", t.TempDir(), "--tenant", "acme", "--project", "shop", "--environment", "prod")
		cmd.Env = append(append(cmd.Env, "RUNLOG_SERVER="+node.GRPC), env...)
		text, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != int(output.ExitForbidden) || !strings.Contains(string(text), tt.want) {
			t.Errorf("%v: exit %d, %s; want %s", tt.roles, code, text, tt.want)
		}
	}
}
