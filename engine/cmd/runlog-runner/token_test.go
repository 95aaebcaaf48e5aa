package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunnerTokenFileSEC5: a runner goes on with the token that is in its file, once the earlier
// one is revoked. The file is the runner's alone: a caller without a token has no rights, before
// and after.
func TestRunnerTokenFileSEC5(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	admin, file := filepath.Join(dir, "admin"), filepath.Join(dir, "token")
	node := startNode(t, t.TempDir(), "RUNLOG_ADMIN_TOKEN_FILE="+admin)
	p := programs{t: t, server: node.GRPC}
	do := func(args ...string) string {
		t.Helper()
		code, out, errs := p.runlog(append(args, "--token-file", admin)...)
		if code != 0 {
			t.Fatal(args, code, errs)
		}
		return out
	}
	replace := func(name string) {
		token := do("token", "create", name, "--tenant", "acme", "--role", "producer", "--role", "reader")
		if err := errors.Join(os.WriteFile(file+".next", []byte(token), 0o600), os.Rename(file+".next", file)); err != nil {
			t.Fatal(err)
		}
	}
	replace("first")
	at := spawnRunner(t, node.GRPC, []string{"RUNLOG_TOKEN_FILE=" + file}, "--store", t.TempDir())
	text, err := os.ReadFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	call := func(token, method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, at.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if req.Header.Set("Content-Type", "application/json"); token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		said, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(said)
	}
	executes := func(manifest string) {
		t.Helper()
		if status, said := call("", "POST", "/api/manifests", manifest); status != http.StatusUnauthorized {
			t.Errorf("a caller without a token: %d %s", status, said)
		}
		root := strings.TrimSpace(string(text))
		id := func(said string) string {
			_, id, _ := strings.Cut(said, `"id":"`)
			id, _, _ = strings.Cut(id, `"`)
			return id
		}
		_, said := call(root, "POST", "/api/manifests", manifest)
		_, said = call(root, "POST", "/api/runs", `{"manifest_id":"`+id(said)+`","initiated_by":"jed"}`)
		if status, said := call(root, "GET", "/api/runs/"+id(said)+"?wait=1h", ""); status != http.StatusOK || !strings.Contains(said, `"status":"success"`) {
			t.Errorf("the run: %d %s", status, said)
		}
	}
	executes(`{"name": "one", "steps": [{"step_key": "A"}]}`)
	first := do("token", "list", "-o", "json")
	replace("second")
	for line := range strings.Lines(first) {
		if strings.Contains(line, `"first"`) {
			_, id, _ := strings.Cut(line, `"tokenId":"`)
			id, _, _ = strings.Cut(id, `"`)
			do("token", "revoke", id)
		}
	}
	executes(`{"name": "two", "steps": [{"step_key": "A"}]}`)
}
