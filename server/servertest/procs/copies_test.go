//go:build unix

package procs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"runlog/testbed/await"
)

// stored returns how many events of a run a node has. No answer means none.
func (n *Node) stored(conn *grpc.ClientConn, run string) (count int) {
	n.c.t.Helper()
	all, err := n.c.events(conn, run)
	if err != nil {
		return 0
	}
	return len(all)
}

// append1 appends some events to a run of its own, through a node, and waits until they are
// acknowledged.
func (n *Node) append1(run string, events int) {
	n.c.t.Helper()
	file := filepath.Join(n.c.t.TempDir(), run+".jsonl")
	var lines strings.Builder
	for i := range events {
		fmt.Fprintf(&lines, `{"eventType":"Noted","runId":%q,"tenantId":"t","projectId":"p","environmentId":"e","planId":"plan",`+
			`"planVersion":"1","logicalAttemptId":%d,"engineAttemptId":1,"emittedAt":"2026-11-23T00:00:00Z","payload":{"no":%d}}`+"\n", run, i+1, i+1)
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		n.c.t.Fatal(err)
	}
	n.appendFile(file)
}

func (n *Node) appendFile(file string) {
	n.c.t.Helper()
	if err := output(exec.Command(n.Binary, "--server", n.grpc, "--timeout", "60s", "append", "-f", file)); err != nil {
		n.c.t.Fatal(err)
	}
}

// hasKey reports whether a node has the cluster's signing key.
func (n *Node) hasKey() bool {
	out, err := exec.Command(n.Binary, "--server", n.grpc, "audit", "keys").Output()
	_, missing := os.Stat(filepath.Join(n.Dir, "audit.key"))
	return err == nil && missing == nil && strings.Contains(string(out), "runlog/")
}

// want waits until a node has as many events of each run.
func (n *Node) want(events map[string]int) {
	n.c.t.Helper()
	conn, err := dialNode(n.grpc)
	if err != nil {
		n.c.t.Fatal(err)
	}
	defer conn.Close()
	for run, count := range events {
		await.Poll(n.c.t, fmt.Sprintf("%d events of %s at %s", count, run, n.Name), func() bool { return n.stored(conn, run) == count })
	}
}

// threeWithCopy starts three nodes, appends to all of them, and copies the directory of the third,
// which it leaves stopped. The second leads.
func threeWithCopy(t *testing.T) (n [3]*Node, older string) {
	t.Helper()
	c := New(t, Options{Binary: binary(t), Seed: *seedFlag, Keep: *keepFlag})
	c.Start()
	copy(n[:], c.Nodes())
	n[0].append1("before", 3)
	for _, m := range n {
		m.want(map[string]int{"before": 3})
	}
	older = filepath.Join(t.TempDir(), "older")
	await.Poll(t, "the signing key, for what is salvaged is signed", n[1].hasKey)
	for c.Leader() != n[1] {
		if err := c.Transfer(n[1]); err != nil {
			t.Log(err)
		}
	}
	n[2].Stop()
	copyDir(t, n[2].Dir, older)
	return n, older
}

// TestOlderCopyIsRefused proves D3 with processes: a node whose directory was put back from an
// older copy does not take part while a member that remembers more can be reached, and it says what
// to do. Replaced as it says, it is a voter again, and nothing that was acknowledged is lost.
func TestOlderCopyIsRefused(t *testing.T) {
	t.Parallel()
	n, older := threeWithCopy(t)
	n[0].Stop()
	n[2].Start()
	n[1].append1("after", 5)
	n[2].Stop()
	copyDir(t, older, n[2].Dir)
	n[2].Start() // n2 remembers it, and n1 is down: without n2 it would be no majority
	n[2].ExpectEnd()
	if code, last := n[2].Ended(); code == 0 || !strings.Contains(last, "older than what this node has acknowledged") ||
		!strings.Contains(last, "runlog cluster remove") || strings.Contains(last, "restore") {
		t.Errorf("the older copy ends with code %d: %s", code, last)
	}
	n[0].Start()
	n[0].Ready()
	n[0].want(map[string]int{"before": 3, "after": 5})
	n[2].Replace()
	n[0].c.awaitVoters()
	for _, m := range n {
		m.want(map[string]int{"before": 3, "after": 5})
	}
}

// TestOlderCopyIsSalvaged plays the case that no node can notice: the only nodes that are up are
// the older copy and one that never had what was acknowledged. The node that has it stops itself,
// says so, and never asks to empty its directory. What it has is appended again, and nothing that
// was acknowledged is lost (APP-2, IDM-6).
func TestOlderCopyIsSalvaged(t *testing.T) {
	t.Parallel()
	n, older := threeWithCopy(t)
	n[0].Stop()
	n[2].Start()
	n[1].append1("after", 5)
	n[2].want(map[string]int{"after": 5})
	n[2].Stop()
	copyDir(t, older, n[2].Dir)
	n[1].Stop()
	n[0].Start()
	n[2].Start()
	n[0].Ready()
	n[2].Ready()
	// Raft takes the history of the later term. On a busy machine n2 may have been elected again.
	for i := range 4 {
		if err := n[0].c.Transfer(n[2*(i%2)]); err != nil {
			t.Log(err)
		}
	}
	n[0].append1("later", 8)
	n[1].Start()
	n[1].ExpectEnd()
	code, last := n[1].Ended()
	if code != exitFailed || !strings.Contains(last, "lost entries that this node has applied") || !strings.Contains(last, "runlog cluster salvage") ||
		!strings.Contains(last, "keep it") || strings.Contains(last, "restore") {
		t.Errorf("the holder ends with code %d: %s", code, last)
	}
	if !n[0].Up() || !n[2].Up() {
		t.Fatal("the majority stopped")
	}
	n[0].want(map[string]int{"before": 3, "after": 0, "later": 8})

	lost := filepath.Join(t.TempDir(), "lost.jsonl")
	var did struct{ Events, Signer string }
	runJSON(t, &did, n[1].Binary, "cluster", "salvage", "--data-dir", n[1].Dir, "-f", lost, "-o", "json")
	if did.Events != "5" || did.Signer == "" {
		t.Errorf("salvaged %+v, want 5 events, signed", did)
	}
	if err := output(exec.Command(n[1].Binary, "audit", "verify", lost, "--key", did.Signer)); err != nil {
		t.Error(err)
	}
	for range 2 { // the second time stores nothing
		n[0].appendFile(lost)
	}
	n[1].Replace()
	n[0].c.awaitVoters()
	for _, m := range n {
		m.want(map[string]int{"before": 3, "after": 5, "later": 8})
	}
}

// TestTwoCopiesStop proves that both of two nodes that run with copies of one directory stop, and
// name the addresses of both.
func TestTwoCopiesStop(t *testing.T) {
	t.Parallel()
	n, older := threeWithCopy(t)
	n[2].Start()
	n[2].Ready()
	second := *n[2].c.newNode(2)
	second.Dir, second.flags, second.log = older, slices.Clone(n[2].flags), filepath.Join(t.TempDir(), "second.log")
	second.Start()
	second.ExpectEnd()
	n[2].ExpectEnd()
	for m, other := range map[*Node]*Node{&second: n[2], n[2]: &second} {
		if code, last := m.Ended(); code == 0 || !strings.Contains(last, "copies of one data directory") || !strings.Contains(last, other.raft) {
			t.Errorf("%s at %s ends with code %d: %s", m.Name, m.raft, code, last)
		}
	}
	n[2].Start()
	n[2].Ready()
	n[2].c.awaitVoters()
}
