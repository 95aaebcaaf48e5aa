package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/audit/monitor"
	"runlog/audit/proof"
	"runlog/client/command/output"
)

// TestAuditMonitorTR5: a monitor verifies the records of a node from the first one on, then those
// that are new, and finds that the log does not continue a checkpoint that it is given as verified.
func TestAuditMonitorTR5(t *testing.T) {
	at, do := auditedNode(t)
	dir := t.TempDir()
	var key struct{ PublicKey string }
	if err := json.Unmarshal([]byte(do(output.ExitOK, "publicKey", "audit", "keys", "-o", "json")), &key); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	once := []string{"audit", "monitor", "--state", state, "--key", key.PublicKey, "--once"}
	do(output.ExitUsage, "--key is required", "audit", "monitor", "--state", state, "--once")
	do(output.ExitUsage, "--state is required", "audit", "monitor", "--key", key.PublicKey, "--once")
	appendAttempt(t, at, dir, 1)
	do(output.ExitOK, "3 read in", once...)
	do(output.ExitOK, "3 records; nothing is newer", once...)
	appendAttempt(t, at, dir, 2)
	do(output.ExitOK, `"verified":3,"linked":2,"whole":true`, append(once, "-o", "json")...)
	appendAttempt(t, at, dir, 3)
	do(output.ExitOK, "3 read in", once...)
	do(output.ExitOK, "each new record of acme that was shown is in the log", "audit", "monitor", "--state", state+"-acme", "--tenant", "acme", "--key", key.PublicKey, "--once")
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte(do(output.ExitOK, "note", "audit", "checkpoints", "--limit", "1", "-o", "json")), 0o600); err != nil {
		t.Fatal(err)
	}
	do(output.ExitOK, "9 records; nothing is newer", "audit", "monitor", "--state", state+"-kept", "--since", kept, "--key", key.PublicKey, "--once")

	// A log of the same cluster that another history was signed for, as the monitor remembers it.
	before, err := monitor.ReadState(state)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := proof.PeekCheckpoint(before.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	c.Size, c.Root[0], c.Position = c.Size-1, c.Root[0]^1, c.Position-1
	signer, err := proof.NewSigner(c.Cluster, [32]byte{5})
	if err != nil {
		t.Fatal(err)
	}
	other, err := signer.SignCheckpoint(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := (monitor.State{Checkpoint: other}).Write(state); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		do(output.ExitRefused, "not shown to continue", once...)
	}
	notes, err := os.ReadFile(state + ".contradiction")
	if err != nil || !strings.Contains(string(notes), other) || strings.Count(string(notes), "runlog/") != 4 {
		t.Errorf("the notes are\n%s%v", notes, err)
	}
	if err := os.WriteFile(state, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(output.ExitUsage, "the state is damaged", once...)
}
