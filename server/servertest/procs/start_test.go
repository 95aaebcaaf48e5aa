//go:build unix

package procs

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/server/peer"
)

// outsider makes a node that does not belong to the cluster, and starts it.
func (c *Cluster) outsider(name string, flags ...string) *Node {
	c.t.Helper()
	n := c.newNode(len(c.nodes))
	dir := c.t.TempDir()
	n.Name, n.Dir, n.flags = name, filepath.Join(dir, name), flags
	n.log = filepath.Join(dir, name+".log")
	c.t.Cleanup(n.Kill)
	n.Start()
	n.ExpectEnd()
	return n
}

// join returns the flag that names the nodes of the cluster.
func (c *Cluster) join() string {
	var raft []string
	for _, n := range c.nodes {
		raft = append(raft, n.raft)
	}
	return "--join=" + strings.Join(raft, ",")
}

// joinToken returns the flag that names the file of a join token for a number of nodes.
func (c *Cluster) joinToken(uses int) string {
	c.t.Helper()
	leader := c.Leader()
	token, err := exec.Command(leader.Binary, "cluster", "token", "create", "--uses", fmt.Sprint(uses), "--server", leader.grpc).Output()
	if err != nil {
		c.t.Fatal(err)
	}
	file := filepath.Join(c.t.TempDir(), "join.token")
	if err := os.WriteFile(file, token, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return "--join-token-file=" + file
}

// awaitSaid waits until the process has written a text.
func (n *Node) awaitSaid(what string) {
	n.c.t.Helper()
	if !n.saidOrEnded(what) {
		n.c.t.Fatalf("%s (up: %v) does not say %q:\n%s", n.Name, n.Up(), what, n.Said())
	}
}

// saidOrEnded waits until the process has written a text, or has ended. It reports whether it has
// written it.
func (n *Node) saidOrEnded(what string) bool {
	p := n.last()
	return p.words.Await(p.exited, n.c.ctx.Done(), func(said string) bool { return strings.Contains(said, what) })
}

// wantRefused wants the process to end by itself with a last line that says why.
func (n *Node) wantRefused(why string) {
	n.c.t.Helper()
	if code, last := n.Ended(); code != exitFailed || !strings.Contains(last, why) || strings.Contains(n.Said(), "goroutine ") {
		n.c.t.Errorf("%s: exit code %d, last line %q, want %q", n.Name, code, last, why)
	}
}

// TestStrangersAtStart: mistakes at the start of a node do not harm a cluster under load, and the
// node says what is wrong.
func TestStrangersAtStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{Seed: *seedFlag})
	c.Work(3)
	c.AwaitAck(1)
	twin := c.outsider("n2", c.join())
	again := c.outsider("n3", "--bootstrap-expect=3", c.join())
	foreign := c.outsider("foreign")
	twin.wantRefused("n2")
	again.wantRefused("n3")
	foreign.Ready()
	foreign.Stop()
	foreign.flags = []string{c.join()}
	foreign.Start()
	foreign.ExpectEnd()
	foreign.awaitSaid("FOREIGN_CLUSTER")
	if foreign.Up() {
		foreign.Stop()
	}
	t.Log(c.Settle())
}

// wantNotReady wants every HTTP listener to answer 503 and the reason.
func (n *Node) wantNotReady(why string) {
	n.c.t.Helper()
	for _, at := range []string{n.http, n.admin} {
		code, said := n.ask(at, "/readyz")
		if code != http.StatusServiceUnavailable || !strings.Contains(strings.Join(said, "\n"), why) {
			n.c.t.Errorf("%s at %s: /readyz is %d %v, want 503 and %q", n.Name, at, code, said, why)
		}
		if code, said := n.ask(at, "/healthz"); code != http.StatusOK {
			n.c.t.Errorf("%s at %s: /healthz is %d %v", n.Name, at, code, said)
		}
	}
}

// TestWaitingNodesSayWhy: a node that cannot begin yet logs what it waits for, its HTTP listeners
// say so too, and SIGTERM ends it.
func TestWaitingNodesSayWhy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{Seed: *seedFlag})
	alone := c.outsider("alone", "--bootstrap-expect=3", "--join="+Reserve(t, 1)[0])
	other := c.outsider("other", "--bootstrap-expect=2", "--join="+alone.raft)
	for _, n := range c.Nodes()[:2] {
		n.Kill()
	}
	late := c.outsider("late", c.join())
	alone.awaitSaid("1 of 3 nodes are there")
	other.awaitSaid("expects 3 nodes where this one expects 2")
	late.awaitSaid("a majority of its voters must be up")
	alone.wantNotReady("1 of 3 nodes are there")
	other.wantNotReady("expects 3 nodes where this one expects 2")
	late.wantNotReady("a majority of its voters must be up")
	var stopped sync.WaitGroup
	for _, n := range []*Node{alone, other, late} {
		stopped.Go(n.Stop)
	}
	stopped.Wait()
	c.Nodes()[2].Kill()
	c.Nodes()[2].Start() // A member without a majority.
	c.Nodes()[2].awaitSaid("requestVote")
	c.Nodes()[2].Stop()
	for _, n := range c.Nodes() {
		n.Start()
	}
	c.Ready()
}

// TestTooManyFounders: nodes that name more nodes than they expect do not form several clusters.
// Three that name only themselves form one, and the others join it with a token.
func TestTooManyFounders(t *testing.T) {
	t.Parallel()
	c := New(t, Options{Binary: binary(t), Nodes: 5, Keep: *keepFlag})
	for _, n := range c.Nodes() {
		n.flags = []string{"--bootstrap-expect=3", c.join()}
		n.Start()
	}
	for _, n := range c.Nodes() {
		n.awaitSaid("--join names 5 nodes where 3 make a cluster")
	}
	var founders []string
	for _, n := range c.Nodes()[:3] {
		founders = append(founders, n.raft)
	}
	for _, n := range c.Nodes()[:3] {
		n.Stop()
		n.flags = []string{"--bootstrap-expect=3", "--join=" + strings.Join(founders, ",")}
		n.Start()
	}
	for _, n := range c.Nodes()[:3] {
		n.Ready()
	}
	token := c.joinToken(2)
	for _, n := range c.Nodes()[3:] {
		n.Stop()
		n.flags = append(n.flags, token)
		n.Start()
	}
	c.Ready()
	members, err := c.members()
	if err != nil || len(members) != 5 {
		t.Errorf("the cluster of the leader has the members %v, %v", members, err)
	}
}

// TestWrongCertificates: nodes with certificates form a cluster. A node whose certificate is of
// another authority, of another node, or expired does not get in, and neither does one without; the
// others go on.
func TestWrongCertificates(t *testing.T) {
	t.Parallel()
	dir, strange, now := t.TempDir(), t.TempDir(), time.Now()
	for _, d := range []string{dir, strange} {
		if err := peer.MakeCA(d, now.Add(-48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	flags := func(dir, name string, at time.Time) []string {
		t.Helper()
		if _, err := peer.IssueNode(dir, name, at, time.Hour); err != nil {
			t.Fatal(err)
		}
		return nodeTLS(t, dir, dir, name)
	}
	c := New(t, Options{Binary: binary(t), Seed: *seedFlag, Keep: *keepFlag})
	for i, n := range c.Nodes() {
		n.flags = append(n.flags, flags(dir, fmt.Sprintf("n%d", i+1), now)...)
	}
	c.Start()
	c.Work(3)
	flags(strange, "n4", now)
	wrong := map[string]struct {
		flags []string
		says  string
	}{
		"n4": {nodeTLS(t, dir, strange, "n4"), "is of another certificate authority"},
		"n5": {flags(dir, "n5", now.Add(-24*time.Hour)), "is expired since"},
		"n7": {flags(dir, "n6", now), `belongs to node "n6", but --node-id is "n7"`},
		"n8": {nil, "refuses this node: PROTOCOL: one end speaks TLS and the other does not"},
	}
	nodes := map[*Node]string{}
	for name, with := range wrong {
		nodes[c.outsider(name, append(with.flags, c.join())...)] = with.says
	}
	for n, says := range nodes {
		n.awaitSaid(says)
		t.Logf("%s said:\n%s", n.Name, n.Said())
		if _, err := os.Stat(filepath.Join(n.Dir, "addresses.json")); err == nil {
			t.Errorf("%s has begun to serve", n.Name)
		}
		n.Kill()
	}
	c.AwaitAck(1)
	t.Log(c.Settle())
}

// nodeTLS returns the flags that name an authority, and the certificate and key of a node.
func nodeTLS(t *testing.T, authority, dir, name string) []string {
	t.Helper()
	ca, _ := peer.CAFiles(authority)
	cert, key := peer.NodeFiles(dir, name)
	return []string{"--node-ca", ca, "--node-cert", cert, "--node-key", key}
}
