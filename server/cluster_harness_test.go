package server

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/testbed/bubble"
)

// nodes is a cluster in one process.
type nodes []*node

// startNodes starts n nodes that make a cluster together, and waits until all are ready.
func startNodes(t testing.TB, n int, change ...func(i int, o *Options)) nodes {
	t.Helper()
	addresses := freeAddresses(t, n)
	all := make(nodes, n)
	for i := range all {
		all[i] = &node{t: t, opts: testOptions(t)}
		o := &all[i].opts
		o.NodeID, o.RaftListen, o.BootstrapExpect, o.Join = string(rune('a'+i)), addresses[i], n, addresses
		o.Dial = netOf(t).Dialer(hostOf(addresses[i]))
		o.Raft.ElectionTimeout = time.Second
		for _, c := range change {
			c(i, o)
		}
	}
	t.Cleanup(all.close)
	all.start()
	return all
}

// freeAddresses returns addresses of a test's network without a listener, each on a loopback
// host of its own.
func freeAddresses(t testing.TB, n int) []string {
	addresses := make([]string, n)
	for i := range addresses {
		addresses[i] = netOf(t).Host() + ":7413"
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
	bubble.Test(t, func(t *testing.T) {
		taken, err := netOf(t).Listen("tcp", "127.0.0.1:0")
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
	})
}
