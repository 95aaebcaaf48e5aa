package proof

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/proto/contract"
)

// TestDocumentedExample holds the example of docs/audit.md to the code, digit by digit.
func TestDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	want := documentedExample(t)
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/audit.md does not show the example as it is:\n%s", want)
	}
}

func documentedExample(t *testing.T) string {
	cluster := [16]byte{0x01, 0x91, 0xa3, 0xc8, 0xf6, 0xb2, 0x7d, 0x4e, 0x8f, 0x1a, 0x2b, 0x3c, 0x4d, 0x5e, 0x6f, 0x70}
	var chain contract.Digest
	if _, err := hex.Decode(chain[:], []byte("1bb9afb2823287c1f0495b470854b3edd3535ba11b0eb2445a771d50c9eabe7c")); err != nil {
		t.Fatal(err)
	}
	head := RunHead{
		RunID: "run_2026-02-11_abc123", TenantID: "acme", ProjectID: "data", EnvironmentID: "prod", PlanID: "nightly", PlanVersion: "1.2",
		CreatedAt: 1770805800123456790, LastSeq: 1, PersistedAt: 1770805800123456790, Chain: chain,
	}
	second := RunHead{RunID: "run-2", TenantID: "acme", ProjectID: "data", EnvironmentID: "prod", PlanID: "nightly", PlanVersion: "1.2", CreatedAt: 1770805860000000000}
	third := second
	third.RunID, third.TenantID = "run-3", "globex"
	root, path := testTree(t, []RunHead{head, second, third}, 0)
	if want := tlog.NodeHash(tlog.NodeHash(head.Leaf(), second.Leaf()), third.Leaf()); root != want || path[1] != third.Leaf() {
		t.Fatal("the tree is another")
	}
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(i)
	}
	signer, err := NewSigner(cluster, seed)
	if err != nil {
		t.Fatal(err)
	}
	leaf := contract.Leaf{Chain: chain, Position: 42, PersistedAt: 1770805800123456790}
	c := Checkpoint{Cluster: cluster, Incarnation: [8]byte(cluster[:]), Size: 1, Root: leaf.Hash(), Position: 45, CompleteThrough: 1770805860000000000, Runs: 3, Heads: root}
	note, err := signer.SignCheckpoint(&c)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("```\n")
	rest := head.AppendCanonical(nil)
	cut := func(n int, what string) {
		fmt.Fprintf(&b, "%-64x  %s\n", rest[:n], what)
		rest = rest[n:]
	}
	cut(18, "runlog/run-head/1, 0")
	for _, text := range []string{head.RunID, head.TenantID, head.ProjectID, head.EnvironmentID, head.PlanID, head.PlanVersion} {
		cut(2+len(text), text)
	}
	cut(8, "createdAt")
	cut(8, "lastSeq 1")
	cut(8, "persistedAt")
	cut(32, "chainDigest")
	first, other, last := head.Leaf(), second.Leaf(), third.Leaf()
	fmt.Fprintf(&b, "\nhead 0     %x\nhead 1     %x  run-2, made at 2026-02-11T10:31:00Z, without records\nhead 2     %x  run-3 of tenant globex, as run-2\n", first[:], other[:], last[:])
	fmt.Fprintf(&b, "root       %x\npath of 0  head 1, head 2\n```\n\n", root[:])
	fmt.Fprintf(&b, "The key whose seed is the bytes 0 to 31, and the note that it signs:\n\n```\n%s\n```\n\n```\n%s```\n", signer.PublicKey(), note)
	return b.String()
}
