//go:build unix

package procs

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// previous returns the command runlog of the last tag before this source, and its version. Without
// such a tag it builds this source under another version.
func previous(t *testing.T) (path, version string) {
	t.Helper()
	out, err := exec.Command("git", "-C", source, "describe", "--tags", "--abbrev=0", "HEAD^").Output()
	tag := strings.TrimSpace(string(out))
	if err != nil || tag == "" {
		t.Log("there is no tag before this one: the previous version is this source under another name")
		older := filepath.Join(t.TempDir(), "runlog-previous")
		if err := output(exec.Command("cp", binary(t), older)); err != nil {
			t.Fatal(err)
		}
		return older, "previous"
	}
	tree := t.TempDir()
	archive := filepath.Join(t.TempDir(), "archive")
	for _, cmd := range []*exec.Cmd{
		exec.Command("git", "-C", source, "archive", "--format=tar", "-o", archive, tag), exec.Command("tar", "-C", tree, "-xf", archive),
	} {
		if err := output(cmd); err != nil {
			t.Fatal(err)
		}
	}
	return binaryOf(t, tree, tag), tag
}

// TestRollingUpgrade upgrades a cluster under load from the previous version to this one as
// docs/operations.md describes: node by node, the leader last. Then it goes back, as far as the
// older version reads the newer version's files; if it does not, it must say so. No acknowledged
// event may be lost (APP-2, IDM-6).
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	older, version := previous(t)
	newer := binary(t)
	c := New(t, Options{Binary: older, Seed: *seedFlag, Keep: *keepFlag})
	c.Start()
	c.Work(6)
	c.AwaitAck(20)
	roll(t, c, newer)
	t.Logf("%s, upgraded: %d appends", version, c.clients.Acknowledged())
	back := c.Nodes()[0]
	for _, n := range c.Nodes() { // the one that leads stays
		if n != c.Leader() {
			back = n
		}
	}
	back.Stop()
	back.Binary = older
	back.Start()
	if back.ExpectEnd(); back.refuses(t) {
		back.Binary = newer
		back.Start()
		c.Ready()
	} else {
		roll(t, c, older)
	}
	t.Logf("and back: %s", c.Settle())
}

// roll restarts all nodes of another version with this one, the leader last.
func roll(t *testing.T, c *Cluster, binary string) {
	t.Helper()
	for range c.Nodes() {
		next := c.nextOther(binary)
		if next == nil {
			continue
		}
		next.runs(binary)
		c.AwaitAck(10)
	}
	for _, n := range c.Nodes() {
		if n.Binary != binary {
			t.Errorf("%s was left out", n.Name)
		}
	}
}

// nextOther returns a node that does not run a binary, the leader last; nil: all run it.
func (c *Cluster) nextOther(binary string) *Node {
	c.t.Helper()
	leader := c.Leader()
	for _, n := range c.nodes {
		if n != leader && n.Binary != binary {
			return n
		}
	}
	if leader.Binary != binary {
		return leader
	}
	return nil
}

// runs stops the node as an operator does, starts it with a binary, and waits until it serves.
func (n *Node) runs(binary string) {
	n.c.t.Helper()
	n.Stop()
	n.Binary = binary
	n.Start()
	n.Ready()
}

// refuses waits until the node is ready, or has ended because it does not know the format of its
// files.
func (n *Node) refuses(t *testing.T) bool {
	t.Helper()
	if n.readyOrEnded(); n.Up() {
		return false
	}
	if last := n.last().lastLine(); !strings.Contains(last, "format") {
		t.Errorf("%s, back at its old version, has ended: %s", n.Name, last)
	}
	return true
}
