package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runlog/client/command/output"
	"runlog/server/auth"
)

// TestTokensAndContexts: the admin token makes other tokens; a context keeps server and token
// for the user alone. A flag wins over the environment, and the environment over the context. No
// output but that of create has a token.
func TestTokensAndContexts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	admin := filepath.Join(dir, "admin.token")
	n := spawnNode(t, filepath.Join(dir, "data"), "RUNLOG_ADMIN_TOKEN_FILE="+admin)
	addresses := n.ready(t)
	env := map[string]string{"HOME": dir}
	do := func(want output.ExitCode, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		s := testSession(&out, &errs)
		s.Getenv = func(name string) string { return env[name] }
		if code := run(context.Background(), s, args); code != want {
			t.Errorf("%v: exit %d, %s", args, code, errs.String())
		}
		if strings.Contains(errs.String(), auth.TokenPrefix) {
			t.Errorf("%v: a token on stderr: %s", args, errs.String())
		}
		return out.String() + errs.String()
	}
	at := []string{"--server", addresses.GRPC}
	do(output.ExitForbidden, append(at, "whoami")...)
	root := append(slices.Clone(at), "--token-file", admin)
	token := strings.Split(do(output.ExitOK, append(root, "token", "create", "ci", "--tenant", "acme", "--role", "reader", "--expires", "1h", "--act-for", "token:jed,ann")...), "\n")[0]
	if _, ok := auth.ParseToken(token); !ok {
		t.Fatalf("create prints %q", token)
	}
	list := do(output.ExitOK, append(root, "token", "list")...)
	if !strings.Contains(list, "ci") || !strings.Contains(list, "acme") || !strings.Contains(list, "ann,token:jed") || strings.Contains(list, auth.TokenPrefix) {
		t.Errorf("list: %s", list)
	}
	do(output.ExitOK, append(at, "context", "add", "ci", "--token", token)...)
	do(output.ExitOK, append(root, "context", "add", "admin")...)
	file := filepath.Join(dir, ".config", "runlog", "contexts.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if list := do(output.ExitOK, "context", "list"); strings.Contains(list, auth.TokenPrefix) || !strings.Contains(list, "*       ci") {
		t.Errorf("contexts: %s", list)
	}
	who := func(want string, args ...string) {
		t.Helper()
		if got := do(output.ExitOK, append(args, "whoami")...); !strings.Contains(got, want) {
			t.Errorf("%v: %s, want %s", args, got, want)
		}
	}
	who("token:ci")
	who("ann,token:jed") // It may act for them (SEC-10).
	who("token:admin-token-file", "--context", "admin")
	env["RUNLOG_CONTEXT"] = "admin"
	who("token:admin-token-file")
	who("token:ci", "--context", "ci")
	env["RUNLOG_TOKEN"] = token
	who("token:ci")
	who("token:admin-token-file", "--token-file", admin)
	delete(env, "RUNLOG_CONTEXT")
	delete(env, "RUNLOG_TOKEN")
	do(output.ExitOK, "context", "use", "admin")
	do(output.ExitOK, "context", "rm", "ci")
	who("token:admin-token-file")
	do(output.ExitUsage, "context", "use", "ci")
	do(output.ExitUsage, "--context", "ci", "whoami")
	do(output.ExitUsage, "context", "add", "../x")
	// A stored token does not follow another server, and none leaves the machine in plain text.
	unsent := do(output.ExitForbidden, "--server", strings.Replace(addresses.GRPC, "127.0.0.1", "localhost", 1), "whoami")
	if !strings.Contains(unsent, "the token of the context was not sent: it is for "+addresses.GRPC) {
		t.Errorf("without the token of the context: %s", unsent)
	}
	do(output.ExitUsage, "--token", "", "whoami")
	do(output.ExitUsage, "--server", "runlog.example.com", "--token-file", admin, "whoami")
	id := strings.Fields(strings.Split(list, "\n")[1])[0]
	do(output.ExitOK, "token", "revoke", id)
	do(output.ExitForbidden, append(at, "--token", token, "whoami")...)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	do(output.ExitUsage, "whoami")
}

// TestAdminListenerSEC12: the commands that call the admin listener send their credentials there,
// and a stored token to its own machine alone.
func TestAdminListenerSEC12(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	admin := filepath.Join(dir, "admin.token")
	n := spawnNode(t, filepath.Join(dir, "data"), "RUNLOG_ADMIN_TOKEN_FILE="+admin)
	addresses := n.ready(t)
	env := map[string]string{"HOME": dir}
	do := func(want output.ExitCode, says string, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		s := testSession(&out, &errs)
		s.Getenv, s.Stdin = func(name string) string { return env[name] }, strings.NewReader(closedRecord("run"))
		if code := run(context.Background(), s, args); code != want || !strings.Contains(out.String()+errs.String(), says) {
			t.Errorf("%v: exit %d, %s%s; want %d, %q", args, code, out.String(), errs.String(), want, says)
		}
	}
	rebuild, imports := []string{"projector", "rebuild", "--admin", addresses.Admin}, []string{"import", "-", "--admin", addresses.Admin}
	for _, command := range [][]string{rebuild, imports} {
		do(output.ExitForbidden, "UNAUTHENTICATED", command...)
	}
	do(output.ExitOK, "Rebuilt", append(rebuild, "--token-file", admin)...)
	do(output.ExitOK, "1 inserted", append(imports, "--token-file", admin)...)
	do(output.ExitUsage, "in plain text", "projector", "rebuild", "--admin", "192.0.2.1:7412", "--token-file", admin)
	do(output.ExitOK, "", "context", "add", "elsewhere", "--server", "https://runlog.example.com", "--token-file", admin)
	do(output.ExitForbidden, "UNAUTHENTICATED", rebuild...)
	do(output.ExitOK, "", "context", "add", "here", "--server", addresses.GRPC, "--token-file", admin)
	do(output.ExitOK, "Rebuilt", append(rebuild, "--context", "here")...)
}
