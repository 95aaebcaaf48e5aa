package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/audit/proof"
	"runlog/client/command/output"
)

// TestWitnessTR4: a witness that is run from the command line signs the checkpoints of a node as
// the log grows, also after it was started again, and none of a log that it does not follow.
func TestWitnessTR4(t *testing.T) {
	at, do := auditedNode(t)
	dir := t.TempDir()
	var key struct{ PublicKey string }
	if err := json.Unmarshal([]byte(do(output.ExitOK, "publicKey", "audit", "keys", "-o", "json")), &key); err != nil {
		t.Fatal(err)
	}
	state, secret := filepath.Join(dir, "state"), filepath.Join(dir, "secret")
	serve := func(args ...string) *runningWitness {
		t.Helper()
		return startWitness(t, append([]string{"witness", "serve", "--listen", "127.0.0.1:0", "--state", state, "--key-file", secret}, args...))
	}
	do(output.ExitUsage, "--name is required", "witness", "serve", "--state", state, "--key-file", secret, "--key", key.PublicKey)
	do(output.ExitUsage, "--key is required", "witness", "serve", "--state", state, "--key-file", secret, "--name", "w.example/w")
	do(output.ExitUsage, "--state is required", "witness", "serve", "--key-file", secret, "--key", key.PublicKey, "--name", "w.example/w")
	w := serve("--name", "w.example/w", "--key", key.PublicKey)
	witnessKey, err := proof.ParseWitnessKey(w.key)
	if err != nil {
		t.Fatal(err)
	}
	do(output.ExitUsage, "--url is required", "witness", "ask", "--witness-key", w.key)
	do(output.ExitUsage, "--witness-key: ", "witness", "ask", "--url", w.url, "--witness-key", key.PublicKey)
	do(output.ExitNotFound, "no checkpoint yet", "witness", "ask", "--url", w.url, "--witness-key", w.key)
	// asked is a policy of one witness.
	asked := func(quorum, witness string) string {
		t.Helper()
		path := filepath.Join(dir, "policy")
		text := "log " + key.PublicKey + "\nwitness one " + witness + "\nquorum " + quorum + "\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cosigner, err := proof.NewCosigner("other.example/w", [32]byte{4})
	if err != nil {
		t.Fatal(err)
	}
	strangerKey := cosigner.Key().String()
	do(output.ExitUsage, "line 2: ", "audit", "verify", "none", "--policy", asked("one", key.PublicKey))
	for n := 1; n <= 3; n++ {
		appendAttempt(t, at, dir, n)
		note := do(output.ExitOK, "— w.example/w ", "witness", "ask", "--url", w.url, "--witness-key", w.key)
		if found, err := proof.Cosignatures(note, witnessKey); err != nil || len(found) != 1 {
			t.Errorf("%+v, %v of\n%s", found, err, note)
		}
		kept := filepath.Join(dir, "kept")
		if err := os.WriteFile(kept, []byte(note), 0o600); err != nil {
			t.Fatal(err)
		}
		do(output.ExitOK, "Signature    verified", "audit", "verify", kept, "--key", key.PublicKey)
		do(output.ExitOK, `quorum "one" holds; signed by one at `, "audit", "verify", kept, "--policy", asked("one", w.key))
		do(output.ExitRefused, `do not reach the quorum "one": signed by none; not signed by one`, "audit", "verify", kept, "--policy", asked("one", strangerKey))
		do(output.ExitRefused, `do not reach the quorum "one"`, "audit", "verify", filepath.Join(dir, fmt.Sprint("proof-", n)), "--policy", asked("one", w.key))
		do(output.ExitOK, `quorum "none" holds`, "audit", "verify", filepath.Join(dir, fmt.Sprint("proof-", n)), "--policy", asked("none", w.key))
		w.stop()
		w = serve("--key", key.PublicKey)
	}
	do(output.ExitUsage, "it is the key of w.example/w, not of other", "witness", "serve", "--state", state, "--key-file", secret, "--key", key.PublicKey, "--name", "other")
	do(output.ExitUsage, "it is a key of the type ed25519, not ml-dsa-44", "witness", "serve", "--state", state, "--key-file", secret, "--key", key.PublicKey, "--key-type", "ml-dsa-44")
	do(output.ExitUsage, "they are ed25519 and ml-dsa-44", "witness", "serve", "--state", state, "--key-file", secret+"-2", "--key", key.PublicKey, "--name", "w", "--key-type", "rsa")
	second := startWitness(t, []string{"witness", "serve", "--listen", "127.0.0.1:0", "--state", state + "-3", "--key-file", secret + "-3", "--key", key.PublicKey,
		"--name", "w.example/3", "--key-type", "ml-dsa-44"})
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte(do(output.ExitOK, "— w.example/3 ", "witness", "ask", "--url", second.url, "--witness-key", second.key)), 0o600); err != nil {
		t.Fatal(err)
	}
	do(output.ExitOK, `quorum "one" holds; signed by one at `, "audit", "verify", kept, "--policy", asked("one", second.key))
	second.stop()
	w.stop()
	do(output.ExitUnavailable, "no answer", "witness", "ask", "--url", w.url, "--witness-key", w.key)
	stranger, err := proof.NewSigner([16]byte{1}, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	w = serve("--key", stranger.PublicKey())
	defer w.stop()
	do(output.ExitRefused, "is not followed here", "witness", "ask", "--url", w.url, "--witness-key", w.key)
	if err := os.WriteFile(state+"-2", []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(output.ExitFailed, "the state is damaged", "witness", "serve", "--state", state+"-2", "--key-file", secret, "--key", key.PublicKey)
}

// runningWitness is a witness that a command runs.
type runningWitness struct {
	key, url string
	stop     func()
}

// lines passes on what a command writes, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		l <- strings.TrimSuffix(line, "\n")
	}
	return len(b), nil
}

// startWitness runs a command line that serves, and returns when it is ready.
func startWitness(t *testing.T, args []string) *runningWitness {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, errs, ended := make(lines, 16), make(lines, 64), make(chan output.ExitCode, 1)
	go func() {
		s := testSession(nil, nil)
		s.Stdout, s.Stderr = out, errs
		ended <- run(ctx, s, args)
	}()
	w := &runningWitness{}
	for w.url == "" || w.key == "" {
		select {
		case w.key = <-out:
		case line := <-errs:
			if _, rest, ok := strings.Cut(line, "address="); ok {
				address, _, _ := strings.Cut(rest, " ")
				w.url = "http://" + address
			}
		case code := <-ended:
			t.Fatalf("the witness ended with %d", code)
		}
	}
	w.stop = func() { cancel(); <-ended }
	return w
}
