package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/server"
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
	o.Raft.Autopilot.StableAfter = 200 * time.Millisecond
	o.Raft.SegmentBytes = 1 << 20
	return o
}

// startCluster starts n nodes that make a cluster, for programs that run beside the test.
func startCluster(t *testing.T, n int) []*server.Server {
	t.Helper()
	raft := reserveAddresses(t, n)
	nodes := make([]*server.Server, n)
	var started sync.WaitGroup
	ctx, failed := context.WithCancel(await.Context(t))
	defer failed()
	for i := range nodes {
		started.Go(func() {
			o := clusterOptions(t, i, n, raft)
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
	return nodes
}

// withoutLeader is in what a command prints that found no leader.
var withoutLeader = regexp.MustCompile(`no leader|NO_LEADER|Leader +none`)

// oneLeads waits until one of the nodes leads.
func oneLeads(ctx context.Context, nodes []*server.Server) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	leads := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() { leads <- n.Internals().Replica.Node().WaitLeading(ctx) }()
	}
	return <-leads
}

// TestOperations runs the console blocks of docs/operations.md as they are written, against a
// cluster of three nodes.
func TestOperations(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	servers := make([]string, len(nodes))
	for i, n := range nodes {
		servers[i] = n.Addresses().GRPC
	}
	dir := t.TempDir()
	sh := shell{t: t, env: append(os.Environ(), asRunlog+"=1", "RUNLOG_SERVER="+strings.Join(servers, ","),
		"BACKUPS="+filepath.Join(dir, "backups"), "RESTORED="+filepath.Join(dir, "restored"),
		"PATH="+binDir(t)+string(os.PathListSeparator)+os.Getenv("PATH"))}
	for _, s := range readConsole(t, filepath.Join("..", "..", "docs", "operations.md")) {
		var got string
		// On a busy machine the nodes may be without a leader at any moment.
		await.Until(t, "a leader", func(ctx context.Context) error { return oneLeads(ctx, nodes) }, func() bool {
			got = sh.run(s.command)
			return !withoutLeader.MatchString(got)
		})
		if want, have := steady(s.want), steady(got); !matches(want, have) {
			t.Errorf("line %d: $ %s\nprinted:\n%s\nthe document says:\n%s", s.line, s.command, have, want)
		}
	}
}
