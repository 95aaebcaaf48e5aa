package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/cmd/runlog/internal/output"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest/procs"
	"runlog/testbed/await"
)

// reserved has the listeners of reserveAddresses that no node has yet, by address.
var reserved sync.Map

// reserveAddresses returns loopback addresses for nodes. The ports stay taken until a node listens:
// a free port may become that of another test's connection.
func reserveAddresses(t *testing.T, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses[i] = l.Addr().String()
		reserved.Store(addresses[i], l)
		t.Cleanup(func() { _ = l.Close() })
	}
	return addresses
}

// listenReserved is server.Options.Listen.
func listenReserved(network, address string) (net.Listener, error) {
	if l, ok := reserved.LoadAndDelete(address); ok {
		return l.(net.Listener), nil
	}
	return net.Listen(network, address)
}

// clusterOptions are those of node i of n in one process, which find each other at these addresses.
func clusterOptions(t *testing.T, i, n int, raft []string) server.Options {
	o := server.Options{
		DataDir: filepath.Join(t.TempDir(), "data"), Listen: listenReserved, Fail: func(err error) { t.Errorf("a node stopped itself: %v", err) },
		NodeID: fmt.Sprint("n", i+1), Version: version,
		GRPCListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", RaftListen: raft[i], BootstrapExpect: n, Join: raft,
	}
	o.Raft.ElectionTimeout, o.Raft.Autopilot.StableAfter = 300*time.Millisecond, 200*time.Millisecond
	o.Raft.SegmentBytes = 1 << 20
	return o
}

// startCluster starts n nodes that make a cluster.
func startCluster(t *testing.T, n int) (nodes []*server.Server, raft []string) {
	t.Helper()
	raft = reserveAddresses(t, n+1)
	nodes = make([]*server.Server, n)
	var started sync.WaitGroup
	ctx, failed := context.WithCancel(await.Context(t))
	defer failed()
	for i := range nodes {
		started.Go(func() {
			o := clusterOptions(t, i, n, raft)
			o.Join = raft[:n]
			s, err := server.Start(ctx, o)
			if err != nil {
				t.Errorf("start node %d: %v", i, err)
				failed() // The others would wait for it.
				return
			}
			if err := s.WaitReady(ctx); err != nil {
				t.Errorf("node %d: %v", i, err)
			}
			nodes[i] = s
		})
	}
	started.Wait()
	t.Cleanup(func() {
		var closed sync.WaitGroup
		for _, s := range nodes {
			if s != nil {
				closed.Go(func() { _ = s.Close() })
			}
		}
		closed.Wait()
	})
	if t.Failed() {
		t.FailNow()
	}
	return nodes, raft
}

// runlogAt runs a command line against servers.
func runlogAt(t *testing.T, servers string, args ...string) (output.ExitCode, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), testSession(&out, &errs), append([]string{"--server", servers}, args...))
	return code, out.String(), errs.String()
}

// clusterLine returns a function that runs a command line against all nodes, and checks its exit
// code and what it says.
func clusterLine(t *testing.T, nodes []*server.Server) func(want output.ExitCode, says string, args ...string) {
	var list []string
	for _, s := range nodes {
		list = append(list, s.Addresses().GRPC)
	}
	return func(want output.ExitCode, says string, args ...string) {
		t.Helper()
		code, out, errs := runlogAt(t, strings.Join(list, ","), args...)
		t.Logf("$ runlog %s\n%s%s", strings.Join(args, " "), out, errs)
		if code != want || !strings.Contains(out+errs, says) {
			t.Fatalf("runlog %s: exit %d, want %d and %q\n%s%s", strings.Join(args, " "), code, want, says, out, errs)
		}
	}
}

// TestClusterCommands drives a real cluster: another leader, one node lost, that one removed.
func TestClusterCommands(t *testing.T) {
	t.Parallel()
	nodes, raft := startCluster(t, 3)
	do := clusterLine(t, nodes)
	do(output.ExitOK, "Voters   3, 1 may fail", "cluster", "status")
	do(output.ExitOK, "share the host 127.0.0.1", "cluster", "doctor")
	do(output.ExitNotFound, "MEMBER_NOT_FOUND", "cluster", "remove", "n9")
	do(output.ExitRefused, "MEMBERSHIP_REFUSED", "cluster", "add", procs.Reserve(t, 1)[0])
	do(output.ExitOK, "n2 leads", "cluster", "transfer", "n2")
	do(output.ExitOK, "n2 leads, as before", "cluster", "transfer", "n2")
	_ = nodes[2].Close()
	// The reason is the one that the leader was told last: the connection is refused, or the node
	// was about to stop.
	do(output.ExitFailed, "n3 does not answer at "+raft[2]+": ", "cluster", "doctor")
	do(output.ExitOK, "Voters   3, none may fail", "cluster", "status")
	do(output.ExitRefused, "MEMBERSHIP_REFUSED", "cluster", "remove", "n1")
	do(output.ExitOK, "n3 is removed: 2 voters, none may fail", "cluster", "remove", "n3")
	do(output.ExitOK, "n1 leads", "cluster", "transfer", "n1")
	do(output.ExitFailed, "2 voters tolerate no more failures than 1 would", "cluster", "doctor")
}

// TestClusterAdd: a node that waits is invited, is given the cluster's state, and becomes a voter.
func TestClusterAdd(t *testing.T) {
	t.Parallel()
	nodes, raft := startCluster(t, 3)
	do := clusterLine(t, nodes)
	o := clusterOptions(t, 3, 2, raft)
	o.Join = raft[3:] // it waits for a node that does not come
	o.Fail = func(err error) {
		// It may be told of its removal before it is closed.
		if !strings.Contains(err.Error(), "it was removed from the cluster") {
			t.Errorf("a node stopped itself: %v", err)
		}
	}
	type started struct {
		server *server.Server
		err    error
	}
	fourth := make(chan started, 1)
	go func() {
		s, err := server.Start(t.Context(), o)
		fourth <- started{s, err}
	}()
	var code output.ExitCode
	var out, errs string
	await.Poll(t, "a node that listens, and can be invited", func() bool {
		code, out, errs = runlogAt(t, nodes[1].Addresses().GRPC, "cluster", "add", raft[3], "--for", "30s")
		return !strings.Contains(errs, "MEMBERSHIP_REFUSED")
	})
	t.Log(out, errs)
	s := await.Receive(t, "the node that was invited", fourth)
	if s.err != nil {
		t.Fatal(s.err)
	}
	t.Cleanup(func() { _ = s.server.Close() })
	if code != output.ExitOK || !strings.Contains(out, "n4 is a voter: 4 voters, 1 may fail") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	do(output.ExitRefused, "MEMBER_EXISTS", "cluster", "add", raft[3])
	do(output.ExitOK, "n4 leads", "cluster", "transfer", "n4")
	do(output.ExitOK, "n4 is removed: 3 voters, 1 may fail", "cluster", "remove", "n4")
}

// TestClientGoesOnWhereNodesStop: appends go to the leader, and on to the next one when that is
// stopped; what was acknowledged is there once.
func TestClientGoesOnWhereNodesStop(t *testing.T) {
	t.Parallel()
	nodes, _ := startCluster(t, 3)
	var list []string
	for _, s := range nodes {
		list = append(list, s.Addresses().GRPC)
	}
	c, err := client.Dial(strings.Join(list, ","), client.Options{MaxAttempts: 30, Timeout: 60 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	append10 := func(run string) {
		t.Helper()
		for i := range 10 {
			req := benchMarker()
			req.RunId, req.Events[0].LogicalAttemptId = run, uint32(i+1)
			if _, err := c.AppendEvents(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
	}
	append10("before")
	status, err := c.GetStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range nodes {
		if s.NodeID() == status.GetLeaderId() {
			stopped := make(chan error, 1)
			go func() { stopped <- s.Close() }()
			append10("during")
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		}
	}
	append10("after")
	for _, run := range []string{"before", "during", "after"} {
		var seqs []uint64
		for e, err := range c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: run}) {
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, e.GetRunSeq())
		}
		if len(seqs) != 10 || seqs[9] != 10 {
			t.Errorf("run %s has %v", run, seqs)
		}
	}
}
