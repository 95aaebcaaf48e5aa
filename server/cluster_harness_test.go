package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// nodes is a cluster in one process.
type nodes []*node

// startNodes starts n nodes that make a cluster together, and waits until all are ready.
func startNodes(t testing.TB, n int, change ...func(i int, o *Options)) nodes {
	t.Helper()
	for try := 0; ; try++ {
		addresses := freeAddresses(t, n)
		all := make(nodes, n)
		for i := range all {
			all[i] = &node{t: t, opts: testOptions(t)}
			o := &all[i].opts
			o.NodeID, o.RaftListen, o.BootstrapExpect, o.Join = string(rune('a'+i)), addresses[i], n, addresses
			o.Raft.ElectionTimeout = time.Second
			for _, c := range change {
				c(i, o)
			}
		}
		err := all.tryStart()
		if err == nil {
			t.Cleanup(all.close)
			return all
		}
		all.close()
		// A free port may be taken before the node has it, by any connection of another test.
		if try == 3 || !strings.Contains(err.Error(), "the port is in use") {
			t.Fatal(err)
		}
	}
}

// freeAddresses returns loopback addresses that were free a moment ago. Their ports are below the
// range from which systems choose ports, also for outgoing connections.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	var addresses []string
	for tries := 0; len(addresses) < n; tries++ {
		address := fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))
		l, err := net.Listen("tcp", address)
		if err != nil && tries < 1000 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, address)
		defer l.Close()
	}
	return addresses
}

// start starts all at once, as they wait for each other.
func (ns nodes) start() {
	ns[0].t.Helper()
	if err := ns.tryStart(); err != nil {
		ns[0].t.Fatal(err)
	}
}

// tryStart starts all at once. When one does not start, the others wait for it no longer.
func (ns nodes) tryStart() error {
	ctx, cancel := context.WithCancelCause(ns[0].t.Context())
	defer cancel(nil)
	var started sync.WaitGroup
	for _, n := range ns {
		started.Go(func() {
			if err := n.tryStart(ctx); err != nil {
				cancel(err) // the first one counts
			}
		})
	}
	started.Wait()
	return context.Cause(ctx)
}

// close stops all that run, at once.
func (ns nodes) close() {
	var closed sync.WaitGroup
	for _, n := range ns {
		closed.Go(n.close)
	}
	closed.Wait()
}

// leader waits until one of the running nodes leads.
func (ns nodes) leader() *node {
	ns[0].t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, n := range ns {
			if n.server != nil && n.server.replica.Node().Leading() {
				return n
			}
		}
	}
	ns[0].t.Fatal("nobody leads")
	return nil
}

// followers returns the running nodes that do not lead.
func (ns nodes) followers() nodes {
	leader := ns.leader()
	var others nodes
	for _, n := range ns {
		if n != leader && n.server != nil {
			others = append(others, n)
		}
	}
	return others
}

// mustAppend appends through a node, and retries while the answer permits it.
func (n *node) mustAppend(runID string, events ...*runlogv1.EventWrite) *runlogv1.AppendEventsResponse {
	n.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		resp, err := n.tryAppend(runID, events...)
		if err == nil {
			return resp
		}
		if status.Code(err) != codes.Unavailable || time.Now().After(deadline) {
			n.t.Fatalf("append to %q: %v", runID, err)
		}
	}
}

// TestNodesThatDoNotStart: if one of several nodes fails to start, the others stop waiting and get
// its error.
func TestNodesThatDoNotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	all := nodes{{t: t, opts: testOptions(t)}, {t: t, opts: testOptions(t)}}
	for i, address := range []string{taken.Addr().String(), freeAddresses(t, 1)[0]} {
		o := &all[i].opts
		o.RaftListen, o.BootstrapExpect, o.Join = address, 2, []string{taken.Addr().String()}
	}
	defer all.close()
	if err := all.tryStart(); err == nil || !strings.Contains(err.Error(), "the port is in use") {
		t.Errorf("nodes of which one has no port: %v", err)
	}
}
