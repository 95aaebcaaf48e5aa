//go:build unix

package procs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
	"runlog/server/servertest/workload"
	"runlog/testbed/await"
)

// Election is the election timeout of the nodes.
const Election = 300 * time.Millisecond

// Options of a cluster.
type Options struct {
	// Binary is the path of the command runlog.
	Binary string
	// Nodes in it. Default: 3.
	Nodes int
	// Seed of what the clients draw.
	Seed uint64
	// Network has the nodes' namespaces; nil: all nodes are on loopback.
	Network *Network
	// RunLives is how long a run gets appends. Default: 5 s.
	RunLives time.Duration
	// Pad is the longest padding of an event's payload, in bytes; 0: the workload's default.
	Pad int
	// Before is an earlier history of the cluster. The caller puts the nodes' data in place before
	// it starts them.
	Before *history.History
	// OldKeys is how many signing keys the cluster has from the one that it was restored from.
	OldKeys int
	// Flags and Env (as NAME=VALUE) are given to every node.
	Flags, Env []string
	// Keep the data of a cluster whose test has failed, in addition to logs and history.
	Keep bool
}

// Cluster is a cluster of processes, with its clients.
type Cluster struct {
	t       testing.TB
	ctx     context.Context // ends with the time of the test
	opts    Options
	dir     string
	nodes   []*Node
	clients *workload.Clients
	stop    func() // ends the clients' work; nil: they have stopped
	// finals are the records that the nodes returned last.
	finals []*history.Final
}

// New makes a cluster without starting it. Its processes end with the test. If the test fails, the
// cluster prints the ends of their logs, and keeps the logs and the history.
func New(t testing.TB, opts Options) *Cluster {
	t.Helper()
	if opts.Nodes == 0 {
		opts.Nodes = 3
	}
	if opts.RunLives == 0 {
		opts.RunLives = 5 * time.Second
	}
	dir, err := os.MkdirTemp("", "runlog-procs-")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{t: t, ctx: await.Context(t), opts: opts, dir: dir}
	t.Cleanup(c.end)
	var names, join []string
	for i := range opts.Nodes {
		n := c.newNode(i)
		c.nodes = append(c.nodes, n)
		names, join = append(names, n.Name), append(join, n.raft)
	}
	for _, n := range c.nodes {
		n.flags = opts.Flags
		if opts.Nodes > 1 {
			n.flags = append([]string{"--bootstrap-expect", fmt.Sprint(opts.Nodes), "--join", strings.Join(join, ",")}, opts.Flags...)
		}
	}
	c.clients = workload.New(workload.Options{
		Seed: opts.Seed, Nodes: names, Think: 15 * time.Millisecond, Patience: time.Second, RunLives: opts.RunLives, Pad: opts.Pad, Broken: t.Errorf,
		Dial: c.dial, Connect: c.connect, Before: opts.Before, OldKeys: opts.OldKeys,
	})
	return c
}

// newNode gives a node its addresses. They stay over restarts.
func (c *Cluster) newNode(i int) *Node {
	c.t.Helper()
	n := &Node{c: c, Name: fmt.Sprintf("n%d", i+1), Dir: filepath.Join(c.dir, fmt.Sprintf("n%d", i+1)), Binary: c.opts.Binary, Env: c.opts.Env}
	if net := c.opts.Network; net != nil {
		at := net.clientIP(i)
		n.space = net.space(i)
		n.grpc, n.http, n.admin, n.raft = at+":7410", at+":7411", at+":7412", net.peerIP(i)+":7413"
		return n
	}
	at := Reserve(c.t, 4)
	n.grpc, n.http, n.admin, n.raft = at[0], at[1], at[2], at[3]
	return n
}

// Start starts all nodes and waits until they are ready.
func (c *Cluster) Start() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.Start()
	}
	c.Ready()
}

// Ready waits until all nodes are ready.
func (c *Cluster) Ready() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.Ready()
	}
}

// Nodes returns the nodes, in their order.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Work starts clients, which stop in Settle.
func (c *Cluster) Work(clients int) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	wait, err := c.clients.Hire(ctx, clients)
	if err != nil {
		c.t.Fatal(err)
	}
	before := c.stop
	c.stop = func() {
		cancel()
		wait()
		if before != nil {
			before()
		}
	}
}

// AwaitAck waits until n more appends have been acknowledged.
func (c *Cluster) AwaitAck(n int) {
	c.t.Helper()
	for range n {
		if err := c.clients.AwaitAck(c.ctx); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Settle requires that an append succeeds after all faults have ended. Then it stops the
// clients, waits until all nodes are ready, and checks the history.
func (c *Cluster) Settle() *history.Report {
	c.t.Helper()
	if err := c.clients.Probe(c.ctx); err != nil {
		c.t.Fatalf("%s: %v", history.Progress, err)
	}
	c.rest()
	c.Ready()
	r, err := c.check(c.ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// RepeatAssigned requires that each acknowledged event whose attempt was assigned is answered with
// that attempt again (IDM-10). The cluster must have settled.
func (c *Cluster) RepeatAssigned() {
	c.t.Helper()
	n, err := c.clients.RepeatAssigned(c.ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	if n == 0 {
		c.t.Error("no attempt was assigned: the test proved nothing")
	}
	c.t.Logf("%d assigned attempts were answered again", n)
}

// check checks the history against the nodes' records. Clients must have stopped.
func (c *Cluster) check(ctx context.Context) (*history.Report, error) {
	c.t.Helper()
	finals, err := c.clients.Finals(ctx)
	if err != nil {
		return nil, err
	}
	c.finals = finals
	r := c.clients.Check(finals)
	if !r.OK() {
		c.keepHistory()
		c.t.Errorf("%s", r)
	}
	if r.Counts["events acknowledged"] == 0 {
		c.t.Error("no event was acknowledged: the test proved nothing")
	}
	return r, nil
}

// rest stops the clients.
func (c *Cluster) rest() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// Leader waits until a node leads that is not among the given ones.
func (c *Cluster) Leader(without ...*Node) *Node {
	c.t.Helper()
	var n *Node
	await.Poll(c.t, "a node that leads", func() bool {
		n = c.leads(without...)
		return n != nil
	})
	return n
}

// leads returns a node that reports now that it leads; nil: no node does.
func (c *Cluster) leads(without ...*Node) *Node {
	for _, n := range c.nodes {
		left := false
		for _, w := range without {
			left = left || w == n
		}
		if !left && n.leads() {
			return n
		}
	}
	return nil
}

// Transfer asks the leader to transfer the leadership to a node; nil: the leader picks one.
func (c *Cluster) Transfer(to *Node) error {
	conn, err := c.dial("operator", c.index(c.Leader()))
	if err != nil {
		return err
	}
	defer conn.Close()
	req := &runlogv1.TransferLeadershipRequest{}
	if to != nil {
		req.NodeId = to.Name
	}
	_, err = runlogv1.NewClusterServiceClient(conn).TransferLeadership(c.ctx, req)
	return err
}

func (c *Cluster) index(n *Node) int {
	for i := range c.nodes {
		if c.nodes[i] == n {
			return i
		}
	}
	return -1
}

// end ends all processes. If the test has failed, it shows the ends of their logs.
func (c *Cluster) end() {
	c.rest()
	for _, n := range c.nodes {
		n.Kill()
	}
	if !c.t.Failed() {
		_ = os.RemoveAll(c.dir)
		return
	}
	for _, n := range c.nodes {
		const shown = 3000
		text, _ := os.ReadFile(n.logFile())
		c.t.Logf("%s said last:\n%s", n.Name, text[max(0, len(text)-shown):])
	}
	if !c.opts.Keep {
		for _, n := range c.nodes {
			_ = os.RemoveAll(n.Dir)
		}
	}
	c.t.Logf("logs are in %s", c.dir)
}

// keepHistory writes the history and the nodes' records next to the logs.
func (c *Cluster) keepHistory() {
	f, err := os.Create(filepath.Join(c.dir, "history.jsonl"))
	if err == nil {
		err = history.Encode(f, c.clients.History(), c.finals...)
		_ = f.Close()
	}
	if err != nil {
		c.t.Errorf("the history is not kept: %v", err)
	}
}
