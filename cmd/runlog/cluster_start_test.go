//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/peer"
)

// raftAddresses are where the nodes of the cluster find each other.
func (c *procCluster) raftAddresses() string {
	var all []string
	for _, n := range c.all() {
		all = append(all, n.raft)
	}
	return strings.Join(all, ",")
}

// outsider makes a node that is none of the cluster, and does not start it.
func (c *procCluster) outsider(name string, flags ...string) *clusterNode {
	n := c.newNode(name)
	c.forget(n)
	n.flags = flags
	c.t.Cleanup(func() {
		if c.t.Failed() && n.nodeProcess != nil {
			c.t.Logf("%s said:\n%s", n.name, n.stderr)
		}
	})
	return n
}

// says waits until the process has said something.
func (n *clusterNode) says(what string) {
	n.c.t.Helper()
	for deadline := time.Now().Add(clusterPatience); !strings.Contains(n.stderr.String(), what); time.Sleep(10 * time.Millisecond) {
		if !n.up() || time.Now().After(deadline) {
			n.c.t.Fatalf("%s (up: %v) does not say %q:\n%s", n.name, n.up(), what, n.stderr)
		}
	}
}

// wantEnded: the process ends by itself, not with success, and says why.
func (n *clusterNode) wantEnded(why string) {
	n.c.t.Helper()
	if code, said := n.ended(); code <= 0 || !strings.Contains(said, why) || strings.Contains(said, "goroutine ") {
		n.c.t.Errorf("%s ended with exit code %d and did not say %q:\n%s", n.name, code, why, said)
	}
}

// wantStopped: the process waits, says why, and ends in time and with success when it is told to.
func (n *clusterNode) wantStopped() {
	n.c.t.Helper()
	began := time.Now()
	if code := n.stop(n.c.t); code != 0 || time.Since(began) > 8*time.Second {
		n.c.t.Errorf("%s ended with exit code %d after %v:\n%s", n.name, code, time.Since(began), n.stderr)
	}
}

// TestStrangersAtStart: what an operator may get wrong when a node is started does not harm the
// cluster, and is told.
func TestStrangersAtStart(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, false)
	l := newClusterLoad(t, c, 2)
	l.begin()
	join := c.raftAddresses()

	// The same name with another directory.
	twin := c.outsider("n2", "--join", join)
	twin.start()
	twin.wantEnded("n2")
	again := c.outsider("n3", "--bootstrap-expect", "3", "--join", join)
	again.start()
	again.wantEnded("n3")

	// A node that belongs to another cluster.
	foreign := c.outsider("foreign")
	foreign.start()
	foreign.ready(t)
	foreign.wantStopped()
	foreign.flags = []string{"--join", join}
	foreign.start()
	foreign.says("FOREIGN_CLUSTER")
	if foreign.up() {
		foreign.wantStopped()
	}
	l.awaitAck(time.Now())
	for _, n := range c.all() {
		if !n.up() {
			t.Fatalf("%s has ended", n.name)
		}
	}
	l.verify()
}

// TestGoneDataIsRefused proves APP-2: a node whose log was deleted does not take part, for it would
// vote again where it has voted, and forget what it has acknowledged.
func TestGoneDataIsRefused(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, false)
	l := newClusterLoad(t, c, 2)
	l.begin()
	nodes := c.followers(nil)
	for i, gone := range [][]string{{"raft", "store"}, {"raft"}, {"raft", "store", "projection"}} {
		l.awaitAck(time.Now())
		n := nodes[i]
		n.kill() // nothing is flushed
		kept := filepath.Join(t.TempDir(), "kept")
		for _, name := range gone {
			if err := os.MkdirAll(kept, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(n.dir, name), filepath.Join(kept, name)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // what the first try makes does not deceive the second
			n.start()
			n.wantEnded("gone")
		}
		// What was missing is restored.
		for _, name := range gone {
			if err := os.RemoveAll(filepath.Join(n.dir, name)); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(kept, name), filepath.Join(n.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		n.start()
		n.ready(t)
	}
	l.verify()
}

// TestWaitingNodesSayWhy: a node that cannot begin yet says what it waits for, and ends when it is
// told to.
func TestWaitingNodesSayWhy(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, false)
	nodes := c.followers(nil)
	alone := c.outsider("alone", "--bootstrap-expect", "3", "--join", c.outsider("nobody").raft)
	alone.start()
	alone.says("1 of 3 nodes are there")
	other := c.outsider("other", "--bootstrap-expect", "2", "--join", alone.raft)
	other.start()
	other.says("expects 3 nodes where this one expects 2")
	nodes[0].kill()
	nodes[1].kill()
	late := c.outsider("late", "--join", c.raftAddresses())
	late.start()
	late.says("a majority of its voters must be up")
	nodes[1].start() // a member without a quorum for a moment
	for _, n := range []*clusterNode{alone, other, late} {
		n.wantStopped()
	}
	nodes[1].ready(t)
	nodes[2].kill()
	nodes[1].kill()
	nodes[1].start()
	time.Sleep(500 * time.Millisecond)
	nodes[1].wantStopped()
	for _, n := range nodes {
		n.start()
	}
	for _, n := range nodes {
		n.ready(t)
	}
}

// TestLastVoterStays: the last voter cannot be removed, and goes on.
func TestLastVoterStays(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 1, false)
	n := c.all()[0]
	ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
	defer cancel()
	_, err := runlogv1.NewClusterServiceClient(n.conn).RemoveMember(ctx, &runlogv1.RemoveMemberRequest{NodeId: n.name})
	if status.Code(err) != codes.FailedPrecondition || grpcReason(err) != contract.ReasonMembershipRefused {
		t.Errorf("the last voter was removed: %v", err)
	}
	l := newClusterLoad(t, c, 1)
	l.begin()
	l.awaitAck(time.Now())
	l.verify()
}

// TestTooManyFounders: where more nodes are named than are expected, they do not make several
// clusters of some each. Once those that are to make it are named alone, the others join.
func TestTooManyFounders(t *testing.T) {
	t.Parallel()
	c := &procCluster{t: t}
	t.Cleanup(c.tell)
	for i := range 5 {
		c.newNode(fmt.Sprintf("n%d", i+1))
	}
	all := c.raftAddresses()
	for _, n := range c.all() {
		n.flags = []string{"--bootstrap-expect", "3", "--join", all}
		n.start()
	}
	for _, n := range c.all() {
		n.says("--join names 5 nodes where 3 make a cluster")
	}
	for _, n := range c.all()[:3] {
		n.wantStopped()
		n.flags[3] = strings.Join(strings.Split(all, ",")[:3], ",")
		n.start()
	}
	clusters := map[string]bool{}
	for _, n := range c.all() {
		n.ready(t)
		s, err := n.status()
		if err != nil {
			t.Fatal(err)
		}
		clusters[s.ClusterId] = true
	}
	if len(clusters) != 1 {
		t.Errorf("%d clusters were made", len(clusters))
	}
}

// TestWrongCertificates: a node whose certificate is not one of the cluster's authority, or another
// node's, or at its end, is refused, and says so; the others go on.
func TestWrongCertificates(t *testing.T) {
	t.Parallel()
	dir, strange, now := t.TempDir(), t.TempDir(), time.Now()
	issue := func(dir, name string, at time.Time, valid time.Duration) {
		t.Helper()
		if _, err := peer.IssueNode(dir, name, at, valid); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, strange} {
		if err := peer.MakeCA(d, now.Add(-48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	flags := func(ca, dir, name string) []string {
		authority, _ := peer.CAFiles(ca)
		cert, key := peer.NodeFiles(dir, name)
		return []string{"--node-ca", authority, "--node-cert", cert, "--node-key", key}
	}
	c := &procCluster{t: t}
	t.Cleanup(c.tell)
	for i := range 3 {
		c.newNode(fmt.Sprintf("n%d", i+1))
	}
	for _, n := range c.all() {
		issue(dir, n.name, now, time.Hour)
		n.flags = append(flags(dir, dir, n.name), "--bootstrap-expect", "3", "--join", c.raftAddresses())
		n.start()
	}
	for _, n := range c.all() {
		n.ready(t)
	}
	l := newClusterLoad(t, c, 2)
	l.begin()
	issue(strange, "n4", now, time.Hour)
	issue(dir, "n5", now.Add(-24*time.Hour), time.Hour)
	issue(dir, "n6", now, time.Hour)
	for name, with := range map[string][]string{
		"n4": flags(dir, strange, "n4"), "n5": flags(dir, dir, "n5"), "n7": flags(dir, dir, "n6"), "n8": nil,
	} {
		n := c.outsider(name, append(with, "--join", c.raftAddresses())...)
		n.start()
		time.Sleep(time.Second)
		if n.up() {
			n.wantStopped()
		}
		t.Logf("%s said:\n%s", name, n.stderr)
		if _, err := os.Stat(filepath.Join(n.dir, "addresses.json")); err == nil {
			t.Errorf("%s has begun to serve", name)
		}
	}
	l.awaitAck(time.Now())
	l.verify()
}
