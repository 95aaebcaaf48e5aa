package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"runlog/client/command/output"

	"runlog/audit/proof"
)

// cli is a command line against one server.
func cli(t *testing.T, address, stdin string, args ...string) (code output.ExitCode, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	s := testSession(&out, &errs)
	s.Stdin = strings.NewReader(stdin)
	code = run(context.Background(), s, append([]string{"--server", address}, args...))
	return code, out.String(), errs.String()
}

// verifyKept keeps the checkpoints of a cluster, as notes and as lines, and verifies them.
func verifyKept(t *testing.T, do func(want output.ExitCode, says string, args ...string) string, dir, old, key string) {
	t.Helper()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lines := do(output.ExitOK, "note", "audit", "checkpoints", "--limit", "0", "-o", "json")
	var notes []string // newest first
	for line := range strings.Lines(lines) {
		var c struct{ Note string }
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		notes = append(notes, c.Note)
	}
	all, newest := file("all.jsonl", lines), file("newest.txt", notes[0]+"\n") // as jq -r prints it
	oldest := file("oldest.txt", notes[len(notes)-1])
	do(output.ExitOK, "verified, by "+key, "audit", "verify", newest, "--key", key)
	do(output.ExitOK, "do not contradict one another", "audit", "verify", all, "--key", key, "--key", old)
	do(output.ExitOK, `"checkpoints":`+strconv.Itoa(len(notes)), "audit", "verify", oldest, file("notes.txt", strings.Join(notes, "\n")), newest, "--key", key, "--key", old, "-o", "json")
	do(output.ExitRefused, "but by "+key[:39]+"/", "audit", "verify", newest, "--key", old)
	do(output.ExitRefused, "this alone is no sign of a forgery", "audit", "verify", newest, "--key", old)
	do(output.ExitUnverified, "--key", "audit", "verify", newest)
	do(output.ExitUsage, "several files that all have checkpoints", "audit", "verify", newest, filepath.Join(dir, "two"), "--key", key)
	do(output.ExitOK, `"checkpoints":2`, "audit", "verify", oldest, newest, "--key", key, "--key", old, "-o", "json")
	do(output.ExitRefused, "the signature does not fit", "audit", "verify", file("x.txt", strings.Replace(notes[0], "\nruns ", "\nruns 1", 1)), "--key", key)
	do(output.ExitRefused, "has no signature", "audit", "verify", file("x.txt", notes[0]+"more"), "--key", key)
	for _, change := range [][2]string{{`"runs":"`, `"runs":"1`}, {`"root":"`, `"root":"0`}, {`"records":"`, `"records":"1`}, {`"origin":"`, `"origin":"x`}, {`,"keyId"`, `, "keyId"`}, {`"completeThrough":"2`, `"completeThrough":"1`}, {"\n", ",\n"}} {
		changed := strings.Replace(lines, change[0], change[1], 1)
		do(output.ExitRefused, "line 1: ", "audit", "verify", file("x.jsonl", changed), "--key", key, "--key", old)
	}
	sinceKept(t, do, file, oldest, newest, key, old)
}

// sinceKept verifies that the log continues a checkpoint, and refuses what does not show it.
func sinceKept(t *testing.T, do func(want output.ExitCode, says string, args ...string) string, file func(name, text string) string, oldest, newest, key, old string) {
	t.Helper()
	continued := do(output.ExitOK, "old ", "audit", "checkpoints", "--since", oldest)
	after := file("after.txt", continued)
	do(output.ExitOK, "the log continues the checkpoint of", "audit", "verify", after, "--since", oldest, "--key", key, "--key", old)
	do(output.ExitOK, `"since":{"origin":"runlog/`, "audit", "verify", after, "--since", oldest, "--key", key, "--key", old, "-o", "json")
	do(output.ExitOK, "Signature    verified", "audit", "verify", after, "--key", key)
	do(output.ExitOK, `"checkpoints":2`, "audit", "verify", after, oldest, "--key", key, "--key", old, "-o", "json")
	do(output.ExitRefused, "the proof begins with a checkpoint of", "audit", "verify", after, "--since", newest, "--key", key, "--key", old)
	do(output.ExitRefused, "does not prove that the log continues", "audit", "verify", newest, "--since", oldest, "--key", key, "--key", old)
	// The kept checkpoint is signed with the old key.
	do(output.ExitRefused, "but by ", "audit", "verify", after, "--since", oldest, "--key", key)
	lines := strings.SplitAfter(continued, "\n")
	if lines[1] == "\n" {
		t.Fatalf("there is no hash in\n%s", continued)
	}
	for _, changed := range []string{
		strings.Replace(continued, lines[1], "", 1), strings.Replace(continued, lines[1], lines[1]+lines[1], 1),
		strings.Replace(continued, lines[1], strings.Repeat("A", 43)+"=\n", 1),
	} {
		do(output.ExitRefused, "ask another node", "audit", "verify", file("x.txt", changed), "--since", oldest, "--key", key, "--key", old)
	}
	proved := filepath.Join(filepath.Dir(oldest), "since.proof")
	do(output.ExitOK, "the log continues the checkpoint of", "audit", "proof", "run-1", "-f", proved, "--since", oldest, "--key", old)
	do(output.ExitOK, `"since":{"origin":"runlog/`, "audit", "verify", proved, "--since", oldest, "--key", old, "-o", "json")
	do(output.ExitOK, "the log continues the checkpoint of", "audit", "verify", proved, "--key", old)
	do(output.ExitRefused, "does not prove that the log continues", "audit", "verify", proved, "--since", newest, "--key", old)
	do(output.ExitRefused, "does not prove that the log continues", "audit", "verify", filepath.Join(filepath.Dir(oldest), "three"), "--since", oldest, "--key", old)
	do(output.ExitUsage, "has no checkpoint", "audit", "proof", "run-1", "--since", proved)
	do(output.ExitUsage, "no such file", "audit", "checkpoints", "--since", oldest+"x")

	// A checkpoint of another log, of equally many records, and one of more than the server has.
	other, err := proof.NewSigner([16]byte{9}, [32]byte{9})
	if err != nil {
		t.Fatal(err)
	}
	for size, says := range map[uint64]string{1: "do not lead from one root to the other", 1 << 40: "has fewer records"} {
		note, err := other.SignCheckpoint(&proof.Checkpoint{Cluster: [16]byte{9}, Size: size, Position: 1, CompleteThrough: 1})
		if err != nil {
			t.Fatal(err)
		}
		foreign := file("foreign.txt", note)
		do(output.ExitRefused, says, "audit", "checkpoints", "--since", foreign)
		do(output.ExitRefused, note, "audit", "checkpoints", "--since", foreign)
		do(output.ExitRefused, says, "audit", "proof", "run-1", "--since", foreign, "--key", old, "--key", other.PublicKey())
		do(output.ExitRefused, "but by ", "audit", "proof", "run-1", "--since", foreign, "--key", old)
	}
}

// TestAuditProof: a run is proved into a file that verifies with an old key of the cluster and the
// new one, with no other, and not once anything in it was changed.
func TestAuditProof(t *testing.T) {
	at, do := auditedNode(t)
	dir := t.TempDir()
	if code, out, errs := cli(t, at, readTestdata(t, "run-1.jsonl"), "append", "-f", "-"); code != output.ExitOK {
		t.Fatal(out, errs)
	}
	newestKey := func() (key struct{ PublicKey, Endorsement string }) {
		lines := strings.Split(strings.TrimSpace(do(output.ExitOK, "publicKey", "audit", "keys", "-o", "json")), "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &key); err != nil {
			t.Fatal(err)
		}
		return key
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	said := do(output.ExitOK, "as this server says", "audit", "proof", "run-1", "-f", file("one"))
	first := newestKey()
	if strings.Contains(said, "verified") || !strings.Contains(said, first.PublicKey) {
		t.Errorf("a proof without a given key says:\n%s", said)
	}
	do(output.ExitOK, "verified, by "+first.PublicKey, "audit", "proof", "run-1", "-f", file("one again"), "--key", first.PublicKey)
	do(output.ExitOK, `"verifiedKey":"","serverKey":"`+first.PublicKey, "audit", "proof", "run-1", "-f", file("one in JSON"), "-o", "json")
	do(output.ExitOK, "Endorsed    yes", "audit", "rotate-key")
	do(output.ExitOK, "Checkpoint", "audit", "proof", "run-1", "-f", file("still"), "--newest", "--key", first.PublicKey)
	attempt := func(n string) {
		t.Helper()
		text := strings.ReplaceAll(readTestdata(t, "run-1.jsonl"), `"logicalAttemptId":1,`, `"logicalAttemptId":`+n+`,`)
		if code, out, errs := cli(t, at, text, "append", "-f", "-"); code != output.ExitOK {
			t.Fatal(out, errs)
		}
	}
	attempt("2")
	do(output.ExitOK, "up to runSeq 6", "audit", "proof", "run-1", "-f", file("two"))
	text := do(output.ExitOK, "runlog run proof 2", "audit", "proof", "run-1")
	if two, err := os.ReadFile(file("two")); err != nil || string(two) != text {
		t.Errorf("the proof on the standard output is another than that in the file: %v\n%s", err, text)
	}
	for _, name := range []string{"one", "two", "still"} {
		do(output.ExitOK, "verified, by", "audit", "verify", file(name), "--key", first.PublicKey)
	}
	do(output.ExitOK, `"runId":"run-1"`, "audit", "verify", file("two"), "--key", newestKey().PublicKey, "-o", "json")
	do(output.ExitRefused, "but by "+first.PublicKey[:48], "audit", "verify", file("one"), "--key", newestKey().PublicKey)
	do(output.ExitOK, "events", "audit", "export", "--from", "beginning", "-f", file("x.jsonl"))
	do(output.ExitOK, "verified, by "+newestKey().PublicKey, "audit", "verify", file("x.jsonl"), "--key", newestKey().PublicKey)
	do(output.ExitRefused, "but by "+newestKey().PublicKey[:48]+"; this alone is no sign of a forgery", "audit", "verify", file("x.jsonl"), "--key", first.PublicKey)
	do(output.ExitUnverified, "--key", "audit", "verify", file("one"))
	do(output.ExitUsage, "neither a public key nor a file", "audit", "proof", "run-1", "--key", "x")
	do(output.ExitUsage, "exists", "audit", "proof", "run-1", "-f", file("one"))
	do(output.ExitNotFound, "RUN_NOT_FOUND", "audit", "proof", "nobody", "-f", file("none"))
	stranger, err := proof.NewSigner([16]byte{1}, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	do(output.ExitFailed, "proves nothing", "audit", "proof", "run-1", "-f", file("none"), "--key", stranger.PublicKey())
	if _, err := os.Stat(file("none")); err == nil {
		t.Error("a proof that failed left a file")
	}
	changed := strings.Replace(text, `"eventType":"`, `"eventType":"X`, 1)
	if err := os.WriteFile(file("changed"), []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	do(output.ExitRefused, "line 2: runSeq 1", "audit", "verify", file("changed"), "--key", first.PublicKey)
	if lines := strings.Count(do(output.ExitOK, "runlog/", "audit", "checkpoints", "-o", "json"), "\n"); lines < 2 {
		t.Errorf("%d checkpoints", lines)
	}
	do(output.ExitOK, "COMPLETE THROUGH", "audit", "checkpoints", "--limit", "1")
	attempt("3")
	do(output.ExitOK, "up to runSeq 9", "audit", "proof", "run-1", "-f", file("three"))
	verifyKept(t, do, dir, first.PublicKey, newestKey().PublicKey)
}
