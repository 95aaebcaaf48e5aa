//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	runlogv1 "runlog/proto/runlog/v1"
)

// clusterElection is the election timeout of nodes in tests, and their lease.
const clusterElection = 300 * time.Millisecond

// procCluster are the nodes of a cluster, each a process of its own.
type procCluster struct {
	t     *testing.T
	small bool

	mu    sync.Mutex
	nodes []*clusterNode
}

// clusterNode is one of them. Its addresses stay when it is started again.
type clusterNode struct {
	c                       *procCluster
	name, dir               string
	grpc, http, admin, raft string
	flags                   []string // beside those that name addresses
	conn                    *grpc.ClientConn

	*nodeProcess // the last process
}

// newProcCluster makes a cluster of n nodes and waits until all serve. Small ones flush, compact,
// and drop their log all the time, so that nodes that were away are given snapshots.
func newProcCluster(t *testing.T, n int, small bool) *procCluster {
	t.Helper()
	c := &procCluster{t: t, small: small}
	t.Cleanup(c.tell)
	var addresses []string
	for i := range n {
		addresses = append(addresses, c.newNode(fmt.Sprintf("n%d", i+1)).raft)
	}
	for _, node := range c.nodes {
		if n > 1 {
			node.flags = []string{"--bootstrap-expect", fmt.Sprint(n), "--join", strings.Join(addresses, ",")}
		}
		node.start()
	}
	for _, node := range c.nodes {
		node.ready(t)
	}
	return c
}

// newNode makes a node that is not started yet.
func (c *procCluster) newNode(name string) *clusterNode {
	c.t.Helper()
	at := freePorts(c.t, 4)
	n := &clusterNode{c: c, name: name, dir: filepath.Join(c.t.TempDir(), name), grpc: at[0], http: at[1], admin: at[2], raft: at[3]}
	conn, err := grpc.NewClient(n.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}}))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	n.conn = conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
	return n
}

// forget takes a node out of those that are written to and verified.
func (c *procCluster) forget(n *clusterNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []*clusterNode
	for _, m := range c.nodes {
		if m != n {
			left = append(left, m)
		}
	}
	c.nodes = left
}

// all returns the nodes.
func (c *procCluster) all() []*clusterNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*clusterNode(nil), c.nodes...)
}

// any returns one of the nodes, up or not.
func (c *procCluster) any() *clusterNode {
	nodes := c.all()
	return nodes[rand.IntN(len(nodes))]
}

// portsTaken are those that nodes of this process's tests have.
var portsTaken sync.Map

// freePorts returns loopback addresses that nobody listens on, below the ports that the kernel
// gives to connections: a node that is started again must get its own back.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var addresses []string
	for tries := 0; len(addresses) < n; tries++ {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000))
		if _, taken := portsTaken.LoadOrStore(address, true); taken {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err == nil {
			err = l.Close()
		}
		switch {
		case err == nil:
			addresses = append(addresses, address)
		case tries > 1000:
			t.Fatal(err)
		}
	}
	return addresses
}

// start starts the node, once more where it has ended.
func (n *clusterNode) start() {
	n.c.t.Helper()
	var env []string
	if n.c.small {
		env = []string{smallNode + "=1"}
	}
	flags := append([]string{"--node-id", n.name, "--grpc-listen", n.grpc, "--http-listen", n.http,
		"--admin-listen", n.admin, "--raft-listen", n.raft, "--election-timeout", clusterElection.String()}, n.flags...)
	n.nodeProcess = spawnServe(n.c.t, n.dir, env, flags...)
}

// signal sends the process a signal, by its own id.
func (n *clusterNode) signal(s syscall.Signal) {
	n.c.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.c.t.Fatalf("%s: signal %v: %v\n%s", n.name, s, err, n.stderr)
	}
}

// pause stops the process where it is, and resume lets it go on.
func (n *clusterNode) pause()  { n.signal(syscall.SIGSTOP) }
func (n *clusterNode) resume() { n.signal(syscall.SIGCONT) }

// up tells whether the process has not ended.
func (n *clusterNode) up() bool {
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// ended waits until the process has ended by itself, and returns its exit code and what it said.
func (n *clusterNode) ended() (code int, said string) {
	n.c.t.Helper()
	select {
	case <-n.exited:
	case <-time.After(clusterPatience):
		n.c.t.Fatalf("%s goes on:\n%s", n.name, n.stderr)
	}
	return n.cmd.ProcessState.ExitCode(), n.stderr.String()
}

// leads tells whether the node says that it leads. One that does not answer does not.
func (n *clusterNode) leads() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.admin+"/metrics", http.NoBody)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if lines.Text() == "runlog_raft_leader 1" {
			return true
		}
	}
	return false
}

// leader waits until one of the nodes leads, other than those that are left out.
func (c *procCluster) leader(without ...*clusterNode) *clusterNode {
	c.t.Helper()
	for deadline := time.Now().Add(clusterPatience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, n := range c.all() {
			left := false
			for _, w := range without {
				left = left || w == n
			}
			if !left && n.up() && n.leads() {
				return n
			}
		}
	}
	c.t.Fatal("nobody leads")
	return nil
}

// followers returns those that do not lead.
func (c *procCluster) followers(leader *clusterNode) []*clusterNode {
	var others []*clusterNode
	for _, n := range c.all() {
		if n != leader {
			others = append(others, n)
		}
	}
	return others
}

// status asks a node about the cluster.
func (n *clusterNode) status() (*runlogv1.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return runlogv1.NewClusterServiceClient(n.conn).GetStatus(ctx, &runlogv1.GetStatusRequest{})
}

// level waits until every node has applied the whole log.
func (c *procCluster) level() {
	c.t.Helper()
	var last string
	for deadline := time.Now().Add(clusterPatience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		s, err := c.leader().status()
		if err != nil {
			last = err.Error()
			continue
		}
		last = fmt.Sprint(s)
		index, same := uint64(0), len(s.Members) == len(c.all())
		for _, m := range s.Members {
			index = max(index, m.LastIndex)
		}
		for _, m := range s.Members {
			same = same && m.AppliedPosition == s.Members[0].AppliedPosition && m.LastIndex == index && m.CommitIndex == index
		}
		if same {
			return
		}
	}
	c.t.Fatalf("the nodes do not get level: %s", last)
}

// tell shows, when the test has failed, what the nodes said last.
func (c *procCluster) tell() {
	if !c.t.Failed() {
		return
	}
	for _, n := range c.all() {
		said := n.stderr.String()
		c.t.Logf("%s (up: %v) said last:\n%s", n.name, n.up(), said[max(0, len(said)-6000):])
	}
}
