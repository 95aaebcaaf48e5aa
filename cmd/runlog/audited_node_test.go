package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"runlog/client/command/output"
	"runlog/server"
)

// auditedNode starts a node, and returns its address and what calls a command line that must end
// with an exit code and print a text.
func auditedNode(t *testing.T) (at string, do func(want output.ExitCode, says string, args ...string) string) {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{
		DataDir: t.TempDir(), GRPCListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", RaftListen: "127.0.0.1:0",
		Fail: func(err error) { t.Errorf("the node stopped itself: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	at = s.Addresses().GRPC
	return at, func(want output.ExitCode, says string, args ...string) string {
		t.Helper()
		code, out, errs := cli(t, at, "", args...)
		if code != want || !strings.Contains(out+errs, says) {
			t.Fatalf("runlog %s: exit %d, want %d and %q\n%s%s", strings.Join(args, " "), code, want, says, out, errs)
		}
		return out
	}
}

// appendAttempt appends a run's attempt with a number, and has the cluster make a checkpoint of it.
func appendAttempt(t *testing.T, at, dir string, n int) {
	t.Helper()
	text := strings.ReplaceAll(readTestdata(t, "run-1.jsonl"), `"logicalAttemptId":1,`, fmt.Sprintf(`"logicalAttemptId":%d,`, n))
	for _, c := range []struct {
		input string
		args  []string
	}{
		{text, []string{"append", "-f", "-"}}, {"", []string{"audit", "proof", "run-1", "-f", filepath.Join(dir, fmt.Sprint("proof-", n))}},
	} {
		if code, out, errs := cli(t, at, c.input, c.args...); code != output.ExitOK {
			t.Fatal(out, errs)
		}
	}
}
