package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/proof"
	"runlog/server"
)

// cli is a command line against one server.
func cli(t *testing.T, address, stdin string, args ...string) (code exitCode, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}
	code = a.run(context.Background(), append([]string{"--server", address}, args...))
	return code, out.String(), errs.String()
}

// TestAuditProof: a run is proved into a file that verifies with an old key of the cluster and the new one, with no other,
// and not once anything in it was changed.
func TestAuditProof(t *testing.T) {
	s, err := server.Start(t.Context(), server.Options{
		DataDir: t.TempDir(), GRPCListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", RaftListen: "127.0.0.1:0",
		Fail: func(err error) { t.Errorf("the node stopped itself: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	at, dir := s.Addresses().GRPC, t.TempDir()
	do := func(want exitCode, says string, args ...string) string {
		t.Helper()
		code, out, errs := cli(t, at, "", args...)
		if code != want || !strings.Contains(out+errs, says) {
			t.Fatalf("runlog %s: exit %d, want %d and %q\n%s%s", strings.Join(args, " "), code, want, says, out, errs)
		}
		return out
	}
	if code, out, errs := cli(t, at, readTestdata(t, "run-1.jsonl"), "append", "-f", "-"); code != exitOK {
		t.Fatal(out, errs)
	}
	newestKey := func() (key struct{ PublicKey, Endorsement string }) {
		lines := strings.Split(strings.TrimSpace(do(exitOK, "publicKey", "audit", "keys", "-o", "json")), "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &key); err != nil {
			t.Fatal(err)
		}
		return key
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	said := do(exitOK, "which this server names", "audit", "proof", "run-1", "-f", file("one"))
	first := newestKey()
	if strings.Contains(said, "verified") || !strings.Contains(said, first.PublicKey) {
		t.Errorf("of a key that nobody named it is said:\n%s", said)
	}
	do(exitOK, "verified, by "+first.PublicKey, "audit", "proof", "run-1", "-f", file("one again"), "--key", first.PublicKey)
	do(exitOK, `"verifiedKey":"","serverKey":"`+first.PublicKey, "audit", "proof", "run-1", "-f", file("one in JSON"), "-o", "json")
	do(exitOK, "Endorsed    yes", "audit", "rotate-key")
	do(exitOK, "Checkpoint", "audit", "proof", "run-1", "-f", file("still"), "--newest", "--key", first.PublicKey)
	if code, out, errs := cli(t, at, strings.ReplaceAll(readTestdata(t, "run-1.jsonl"), `"logicalAttemptId":1,`, `"logicalAttemptId":2,`), "append", "-f", "-"); code != exitOK {
		t.Fatal(out, errs)
	}
	do(exitOK, "up to runSeq 6", "audit", "proof", "run-1", "-f", file("two"))
	text := do(exitOK, "runlog run proof 1", "audit", "proof", "run-1")
	if two, err := os.ReadFile(file("two")); err != nil || string(two) != text {
		t.Errorf("the proof on the standard output is another than that in the file: %v\n%s", err, text)
	}
	for _, name := range []string{"one", "two", "still"} {
		do(exitOK, "verified, by", "audit", "verify", file(name), "--key", first.PublicKey)
	}
	do(exitOK, `"runId":"run-1"`, "audit", "verify", file("two"), "--key", newestKey().PublicKey, "-o", "json")
	do(exitRefused, "but by "+first.PublicKey[:48], "audit", "verify", file("one"), "--key", newestKey().PublicKey)
	do(exitOK, "events", "audit", "export", "--from", "beginning", "-f", file("x.jsonl"))
	do(exitOK, "verified, by "+newestKey().PublicKey, "audit", "verify", file("x.jsonl"), "--key", newestKey().PublicKey)
	do(exitRefused, "but by "+newestKey().PublicKey[:48]+"; that alone is no forgery", "audit", "verify", file("x.jsonl"), "--key", first.PublicKey)
	do(exitUsage, "--key", "audit", "verify", file("one"))
	do(exitUsage, "no public key", "audit", "proof", "run-1", "--key", "x")
	do(exitUsage, "exists", "audit", "proof", "run-1", "-f", file("one"))
	do(exitNotFound, "RUN_NOT_FOUND", "audit", "proof", "nobody", "-f", file("none"))
	stranger, err := proof.NewSigner([16]byte{1}, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	do(exitFailed, "proves nothing", "audit", "proof", "run-1", "-f", file("none"), "--key", stranger.PublicKey())
	if _, err := os.Stat(file("none")); err == nil {
		t.Error("a proof that failed left a file")
	}
	changed := strings.Replace(text, `"eventType":"`, `"eventType":"X`, 1)
	if err := os.WriteFile(file("changed"), []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	do(exitRefused, "line 2: runSeq 1", "audit", "verify", file("changed"), "--key", first.PublicKey)
	if lines := strings.Count(do(exitOK, "runlog/", "audit", "checkpoints", "-o", "json"), "\n"); lines < 2 {
		t.Errorf("%d checkpoints", lines)
	}
	do(exitOK, "COMPLETE THROUGH", "audit", "checkpoints", "--limit", "1")
}
