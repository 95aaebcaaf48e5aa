package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/audit/proof"
	"runlog/client/command/output"
)

// TestServeAsksWitnessesTR4: a node that is killed again and again has its witness sign each
// checkpoint, and never one that does not continue those before. The proof of a run has the
// signature, so that a policy holds.
func TestServeAsksWitnessesTR4(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), t.TempDir()
	n := spawnNode(t, data)
	at := n.ready(t).GRPC
	call := func(want output.ExitCode, args ...string) string {
		t.Helper()
		code, out, errs := cli(t, at, "", args...)
		if code != want {
			t.Fatalf("runlog %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
		return out
	}
	var key struct{ PublicKey string }
	if err := json.Unmarshal([]byte(call(output.ExitOK, "audit", "keys", "-o", "json")), &key); err != nil {
		t.Fatal(err)
	}
	w := startWitness(t, []string{"witness", "serve", "--listen", "127.0.0.1:0", "--state", filepath.Join(dir, "state"), "--key-file", filepath.Join(dir, "secret"),
		"--name", "w.example/w", "--key", key.PublicKey})
	defer w.stop()
	policy := filepath.Join(dir, "policy")
	if err := os.WriteFile(policy, []byte("log "+key.PublicKey+"\nwitness one "+w.key+" "+w.url+"\nquorum one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for round := 1; round <= 4; round++ {
		n.kill()
		n = spawnNode(t, data, "RUNLOG_WITNESSES="+policy, "RUNLOG_LOG_LEVEL=debug")
		at = n.ready(t).GRPC
		appendAttempt(t, at, dir, round)
		newest := checkpointIn(t, filepath.Join(dir, fmt.Sprint("proof-", round)))
		n.says(t, func(said string) bool {
			return strings.Contains(said, fmt.Sprintf(`msg="witness signed" witness=one records=%d`, newest.Size))
		})
		path := filepath.Join(dir, fmt.Sprint("witnessed-", round))
		call(output.ExitOK, "audit", "proof", "run-1", "-f", path)
		if out := call(output.ExitOK, "audit", "verify", path, "--policy", policy); !strings.Contains(out, `quorum "one" holds; signed by one at `) {
			t.Errorf("round %d:\n%s", round, out)
		}
		if said := n.stderr.String(); strings.Contains(said, "WITNESS_") {
			t.Errorf("an alert:\n%s", said)
		}
	}
}

// checkpointIn returns the checkpoint of the proof in a file.
func checkpointIn(t *testing.T, path string) *proof.Checkpoint {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\n")
	var first struct{ Checkpoint string }
	if err := json.Unmarshal([]byte(head), &first); err != nil {
		t.Fatal(err)
	}
	c, _, err := proof.PeekCheckpoint(first.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestServeRefusesWitnessesTR4: a node does not start with a policy that it cannot follow.
func TestServeRefusesWitnessesTR4(t *testing.T) {
	t.Parallel()
	cosigner, err := proof.NewCosigner("w.example", [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	key := cosigner.Key().String()
	for text, want := range map[string]string{
		"witness one " + key + "\nquorum none\n":                  "no witness has a URL",
		"witness one " + key + " w.example\nquorum none\n":        `line 1: "w.example" is no address`,
		"witness one x+y+z https://w.example\nquorum none\n":      "line 1: ",
		"witness one " + key + " https://w.example\nquorum two\n": `line 2: no line before defines "two"`,
		"": "there is no quorum line",
	} {
		path := filepath.Join(t.TempDir(), "policy")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, said := serveFailure(t, nil, "--data-dir", filepath.Join(t.TempDir(), "data"), "--witnesses", path)
		if code != int(output.ExitUsage) || !strings.Contains(said, want) || !strings.Contains(said, "--witnesses "+path) {
			t.Errorf("%q: exit %d, %s", text, code, said)
		}
	}
	if code, said := serveFailure(t, nil, "--witnesses", "/none"); code != int(output.ExitUsage) || !strings.Contains(said, "no such file") {
		t.Errorf("no file: exit %d, %s", code, said)
	}
}
