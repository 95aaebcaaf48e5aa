package servertest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
)

// HostOf returns the host of an address.
func HostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// Nodes is a cluster in one process.
type Nodes []*Node

// StartNodes starts n nodes that make a cluster together, and waits until all are ready.
func StartNodes(t testing.TB, n int, change ...func(i int, o *server.Options)) Nodes {
	t.Helper()
	addresses := FreeAddresses(t, n)
	all := make(Nodes, n)
	for i := range all {
		all[i] = &Node{T: t, Opts: Options(t)}
		o := &all[i].Opts
		o.NodeID, o.RaftListen, o.BootstrapExpect, o.Join = string(rune('a'+i)), addresses[i], n, addresses
		o.Dial = Net(t).Dialer(HostOf(addresses[i]))
		o.Raft.ElectionTimeout = time.Second
		for _, c := range change {
			c(i, o)
		}
	}
	t.Cleanup(all.Close)
	all.Start()
	return all
}

// FreeAddresses returns addresses of a test's network without a listener, each on a loopback
// host of its own.
func FreeAddresses(t testing.TB, n int) []string {
	addresses := make([]string, n)
	for i := range addresses {
		addresses[i] = Net(t).Host() + ":7413"
	}
	return addresses
}

// Start starts all at once, as they wait for each other.
func (ns Nodes) Start() {
	ns[0].T.Helper()
	if err := ns.TryStart(); err != nil {
		ns[0].T.Fatal(err)
	}
}

// TryStart starts all at once. When one does not start, the others wait for it no longer.
func (ns Nodes) TryStart() error {
	ctx, cancel := context.WithCancelCause(ns[0].T.Context())
	defer cancel(nil)
	var started sync.WaitGroup
	for _, n := range ns {
		started.Go(func() {
			if err := n.TryStart(ctx); err != nil {
				cancel(err) // the first one counts
			}
		})
	}
	started.Wait()
	return context.Cause(ctx)
}

// Close stops all that run, at once.
func (ns Nodes) Close() {
	var closed sync.WaitGroup
	for _, n := range ns {
		closed.Go(n.Close)
	}
	closed.Wait()
}

// Leader waits until one of the running nodes leads.
func (ns Nodes) Leader() *Node {
	ns[0].T.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, n := range ns {
			if n.Server != nil && n.Server.Internals().Replica.Node().Leading() {
				return n
			}
		}
	}
	ns[0].T.Fatal("nobody leads")
	return nil
}

// Followers returns the running nodes that do not lead.
func (ns Nodes) Followers() Nodes {
	leader := ns.Leader()
	var others Nodes
	for _, n := range ns {
		if n != leader && n.Server != nil {
			others = append(others, n)
		}
	}
	return others
}

// MustAppend appends through a node, and retries while the answer permits it.
func (n *Node) MustAppend(runID string, events ...*runlogv1.EventWrite) *runlogv1.AppendEventsResponse {
	n.T.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		resp, err := n.TryAppend(runID, events...)
		if err == nil {
			return resp
		}
		if status.Code(err) != codes.Unavailable || time.Now().After(deadline) {
			n.T.Fatalf("append to %q: %v", runID, err)
		}
	}
}
