package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/cmd/runlog/internal/cluster"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

const version = "1.2.3"

// startNamed starts a cluster of three nodes in fake time, n1 to n3, all on one host.
func startNamed(t *testing.T) servertest.Nodes {
	addresses := []string{raftAddress(1), raftAddress(2), raftAddress(3)}
	return servertest.StartNodes(t, len(addresses), func(i int, o *server.Options) {
		o.NodeID, o.Version = fmt.Sprint("n", i+1), version
		o.RaftListen, o.Join, o.Dial = addresses[i], addresses, servertest.Net(t).Dialer(servertest.Loopback)
		o.Raft.Autopilot.StableAfter = 200 * time.Millisecond
	})
}

// raftAddress is that of a node of startNamed on the network of its test.
func raftAddress(number int) string { return fmt.Sprint(servertest.Loopback, ":", 7420+number) }

// listOf returns the addresses of nodes, as --server takes them.
func listOf(nodes servertest.Nodes) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.Server.Addresses().GRPC)
	}
	return strings.Join(list, ",")
}

// onNetwork makes connections on the network of a test's nodes.
func onNetwork(t *testing.T) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		return servertest.Net(t).Dial(ctx, servertest.Loopback, to)
	})
}

// runlogAt runs a command line of this package against servers.
func runlogAt(t *testing.T, servers string, args ...string) (code output.ExitCode, said string) {
	t.Helper()
	var out bytes.Buffer
	s := &session.Session{
		Output: output.Output{Stdout: &out, Stderr: &out}, Getenv: func(string) string { return "" }, Version: version,
		DialOptions: []grpc.DialOption{onNetwork(t)},
	}
	root := &cobra.Command{Use: "runlog", SilenceErrors: true, SilenceUsage: true}
	s.Register(root)
	root.AddCommand(cluster.Commands(s)...)
	root.SetArgs(append([]string{"--server", servers}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		var text string
		code, text = s.Explain(err)
		out.WriteString(text)
	}
	return code, out.String()
}

// clusterLine returns a function that runs a command line against all nodes, and checks its exit
// code and what it says.
func clusterLine(t *testing.T, nodes servertest.Nodes) func(want output.ExitCode, says string, args ...string) {
	list := listOf(nodes)
	return func(want output.ExitCode, says string, args ...string) {
		t.Helper()
		code, said := runlogAt(t, list, args...)
		t.Logf("$ runlog %s\n%s", strings.Join(args, " "), said)
		if code != want || !strings.Contains(said, says) {
			t.Fatalf("runlog %s: exit %d, want %d and %q", strings.Join(args, " "), code, want, says)
		}
	}
}

// TestClusterCommands drives a cluster: another leader, one node lost, that one removed.
func TestClusterCommands(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := startNamed(t)
		do := clusterLine(t, nodes)
		do(output.ExitOK, "Voters   3, 1 may fail", "cluster", "status")
		do(output.ExitOK, "n1 and n2 and n3 share the host 127.0.0.1", "cluster", "doctor")
		do(output.ExitNotFound, "MEMBER_NOT_FOUND", "cluster", "remove", "n9")
		do(output.ExitRefused, "MEMBERSHIP_REFUSED", "cluster", "add", raftAddress(4))
		do(output.ExitOK, "n2 leads", "cluster", "transfer", "n2")
		do(output.ExitOK, "n2 leads, as before", "cluster", "transfer", "n2")
		nodes[2].Close()
		// The reason is the one that the leader was told last: the connection is refused, or the
		// node was about to stop.
		do(output.ExitFailed, "n3 does not answer at "+nodes[2].Opts.RaftListen+": ", "cluster", "doctor")
		do(output.ExitOK, "Voters   3, none may fail", "cluster", "status")
		do(output.ExitRefused, "MEMBERSHIP_REFUSED", "cluster", "remove", "n1")
		do(output.ExitOK, "n3 is removed: 2 voters, none may fail", "cluster", "remove", "n3")
		do(output.ExitOK, "n1 leads", "cluster", "transfer", "n1")
		do(output.ExitFailed, "2 voters tolerate no more failures than 1 would", "cluster", "doctor")
	})
}

// TestClusterAdd: a node that waits is invited, is given the cluster's state, and becomes a voter.
func TestClusterAdd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := startNamed(t)
		do := clusterLine(t, nodes)
		address := raftAddress(4)
		fourth := &servertest.Node{T: t, Opts: servertest.Options(t)}
		o := &fourth.Opts
		o.NodeID, o.Version, o.RaftListen = "n4", version, address
		o.BootstrapExpect, o.Join = 2, []string{address} // It waits for a node that does not come.
		o.Fail = func(err error) {
			// It may be told of its removal before it is closed.
			if !strings.Contains(err.Error(), "it was removed from the cluster") {
				t.Errorf("a node stopped itself: %v", err)
			}
		}
		started := make(chan error, 1)
		go func() { started <- fourth.TryStart(t.Context()) }()
		var code output.ExitCode
		var said string
		bubble.Until(t, "a node that listens, and can be invited", func() bool {
			code, said = runlogAt(t, nodes[1].Server.Addresses().GRPC, "cluster", "add", address, "--for", "30s")
			return !strings.Contains(said, "MEMBERSHIP_REFUSED")
		})
		t.Log(said)
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		t.Cleanup(fourth.Close)
		if code != output.ExitOK || !strings.Contains(said, "n4 is a voter: 4 voters, 1 may fail") {
			t.Fatalf("exit %d\n%s", code, said)
		}
		do(output.ExitRefused, "MEMBER_EXISTS", "cluster", "add", address)
		do(output.ExitOK, "n4 leads", "cluster", "transfer", "n4")
		do(output.ExitOK, "n4 is removed: 3 voters, 1 may fail", "cluster", "remove", "n4")
	})
}

// TestClientGoesOnWhereNodesStop: appends go to the leader, and on to the next one when that is
// stopped; what was acknowledged is there once.
func TestClientGoesOnWhereNodesStop(t *testing.T) {
	bubble.Test(t, testClientGoesOnWhereNodesStop)
}

func testClientGoesOnWhereNodesStop(t *testing.T) {
	nodes := startNamed(t)
	c, err := client.Dial(listOf(nodes), client.Options{MaxAttempts: 30, Timeout: 60 * time.Second, DialOptions: []grpc.DialOption{onNetwork(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	append10 := func(run string) {
		t.Helper()
		for i := range 10 {
			if _, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{servertest.Numbered(i)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	append10("before")
	leader := nodes.Leader()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		leader.Close()
	}()
	append10("during")
	<-stopped
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
