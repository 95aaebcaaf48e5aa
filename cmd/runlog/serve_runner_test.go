package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/client/command/output"
)

// TestServeRunnerATT2: a node with --runner executes manifests of its own machine. After a restart
// it goes on with them.
func TestServeRunnerATT2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(scope string) (*nodeProcess, processes, string) {
		n := spawnNode(t, dir, "RUNLOG_RUNNER="+scope, "RUNLOG_RUNNER_LISTEN=127.0.0.1:0")
		a := n.ready(t)
		return n, processes{t: t, server: a.GRPC}, awaitRunner(t, n)
	}
	n, p, url := start("acme/shop/prod")
	manifest := write(t, `{"name": "model", "steps": [
		{"step_key": "A", "executor": "command", "input": {"argv": ["echo", "rows"]}},
		{"step_key": "B", "step_type": "compute", "depends_on": ["A"], "compute_contract": {
			"executor": "excel_farm", "inputs": ["rows"], "outputs": ["model.xlsx"], "verification": "operator_attest"}},
		{"step_key": "C", "depends_on": ["B"]}]}`)
	code, out, errs := p.run("", "runner", "run", manifest, "--by", "jed", "--runner", url)
	if code != 0 || !strings.HasSuffix(out, " is waiting\n") {
		t.Fatalf("run: %d %s %s", code, out, errs)
	}
	run := strings.Fields(out)[1]
	if code := n.stop(t); code != 0 {
		t.Fatalf("exit %d:\n%s", code, n.stderr)
	}
	n, p, url = start("acme/shop/prod")
	resp, err := http.Get(url + "/api/runs/" + run)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if code, out, errs := p.run("", "runner", "resume", run, "--by", "jed", "--runner", url); resp.StatusCode != http.StatusOK || code != 0 || !strings.HasSuffix(out, " is waiting\n") {
		t.Errorf("after a restart: %s; resume: %d %s %s", resp.Status, code, out, errs)
	}
	if _, shown, _ := p.run("", "snapshot", run, "-o", "json"); !strings.Contains(shown, `"tenantId":"acme","projectId":"shop","environmentId":"prod"`) {
		t.Errorf("the run is elsewhere: %s", shown)
	}
	// A signal reaches it too: the runner watches its own node.
	_, _, _ = p.run("", "signal", run, "CANCEL")
	if code, out, _ := p.run("", "watch", run, "--until-done", "--for", "60s"); code != int(output.ExitRunNotOK) || !strings.Contains(out, "CANCELLED") {
		t.Errorf("cancel: %d %s", code, out)
	}
	if code := n.stop(t); code != 0 {
		t.Errorf("exit %d:\n%s", code, n.stderr)
	}
}

// TestServeRunnerRefusesSEC1: a node does not execute steps where another machine, or a caller with
// few rights, could get those of the node by them. It makes nothing on disk then.
func TestServeRunnerRefusesSEC1(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--runner --auth=required":                         "access control exclude each other",
		"--runner --admin-token-file=TOKEN":                "access control exclude each other",
		"--runner --join=127.0.0.1:1":                      "a cluster exclude each other",
		"--runner --bootstrap-expect=3":                    "a cluster exclude each other",
		"--runner --grpc-listen=0.0.0.0:0 --insecure":      "needs --grpc-listen at an address of loopback",
		"--runner --http-listen=:0 --insecure":             "needs --http-listen at an address of loopback",
		"--runner --admin-listen=10.0.0.1:0 --insecure":    "needs --admin-listen at an address of loopback",
		"--runner --raft-listen=192.0.2.1:7413 --insecure": "needs --raft-listen at an address of loopback",
		"--runner --runner-listen=0.0.0.0:7430":            "needs --runner-listen at an address of loopback",
		"--runner acme/shop/prod":                          "write --runner=acme/shop/prod",
		"--runner=acme":                                    "write --runner=TENANT/PROJECT/ENVIRONMENT",
		"--runner=acme//prod":                              "write --runner=TENANT/PROJECT/ENVIRONMENT",
		"--runner=":                                        "--runner is empty",
		"--runner-listen=127.0.0.1:0":                      "needs --runner",
	} {
		dir := filepath.Join(t.TempDir(), "data")
		token := filepath.Join(t.TempDir(), "token")
		args := strings.Fields(strings.ReplaceAll(flags, "TOKEN", token))
		code, text := serveFailure(t, nil, append([]string{"--data-dir", dir}, args...)...)
		if code != int(output.ExitUsage) || !strings.Contains(text, want) {
			t.Errorf("%s: exit %d, %s; want %q", flags, code, text, want)
		}
		for _, path := range []string{dir, token} {
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("%s: %s is made: %v", flags, path, err)
			}
		}
	}
}

// TestServeRunnerFails: a node whose runner cannot start stops, and says why.
func TestServeRunnerFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken := spawnNode(t, t.TempDir()).ready(t).HTTP
	code, text := serveFailure(t, nil, "--data-dir", dir, "--runner", "--runner-listen", taken, "--grpc-listen", "127.0.0.1:0",
		"--http-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0")
	if code != int(output.ExitFailed) || !strings.Contains(text, "cannot listen for the API") || !strings.Contains(text, taken) {
		t.Errorf("exit %d: %s", code, text)
	}
}
