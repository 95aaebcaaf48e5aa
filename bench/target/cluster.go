package target

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"runlog/bench/report"
)

// Bounds of ClusterOptions.
const (
	MinNodes = 2
	MaxNodes = 9
)

const (
	// ClusterSettle is how long a cluster may take to elect a leader, or to bring a node up to
	// date.
	ClusterSettle = 60 * time.Second
	// clusterPoll is the interval of checks whether a cluster is ready: it is long because a check
	// asks all members.
	clusterPoll = 20 * time.Millisecond
	// statusLimit is a little more than a node waits for members that do not answer.
	statusLimit = 10 * time.Second
	// reconnectPoll is how often a node that was killed is tried again.
	reconnectPoll = 20 * time.Millisecond
)

// Cluster is several runlog nodes in one cluster, each in a process of its own, on free ports of
// loopback and with their data on the same disk. As a Target it is the node that led when all of
// them were ready.
type Cluster struct {
	*Remote
	nodes  []*Node
	routes []*Remote // one for each node
	leader int
	term   uint64 // in which that one led
}

// ClusterOptions configure a Cluster.
type ClusterOptions struct {
	// Binary is the program runlog.
	Binary string
	// Dir gets a directory for each node, as NodeOptions.Dir is. It is the caller's.
	Dir string
	// Nodes is the number of nodes.
	Nodes int
	// Connections that callers share. Default: 1.
	Connections int
}

var (
	_ Target    = (*Cluster)(nil)
	_ Streamer  = (*Cluster)(nil)
	_ Reader    = (*Cluster)(nil)
	_ Group     = (*Cluster)(nil)
	_ Checker   = (*Cluster)(nil)
	_ Meter     = (*Cluster)(nil)
	_ Describer = (*Cluster)(nil)
)

// StartCluster starts the nodes and returns once all of them are ready and one leads.
func StartCluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	if o.Nodes < MinNodes || o.Nodes > MaxNodes {
		return nil, fmt.Errorf("bench: a cluster of %d nodes, want %d to %d", o.Nodes, MinNodes, MaxNodes)
	}
	c := &Cluster{}
	if err := c.open(ctx, &o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) open(ctx context.Context, o *ClusterOptions) error {
	peers, err := FreeAddresses(o.Nodes)
	if err != nil {
		return err
	}
	for i := range peers {
		id := nodeName(i)
		dir := filepath.Join(o.Dir, id)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		n, err := launch(NodeOptions{Binary: o.Binary, Dir: dir, id: id, raft: peers[i], peers: peers})
		c.nodes = append(c.nodes, n)
		if err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := n.waitReady(ctx); err != nil {
			return err
		}
		route, err := Connect(n.Address, 1, reconnectEvery(reconnectPoll))
		if err != nil {
			return err
		}
		c.routes = append(c.routes, route)
	}
	if err := c.InSync(ctx); err != nil {
		return err
	}
	if c.leader, c.term, err = c.leaderAndTerm(ctx); err != nil {
		return err
	}
	c.Remote, err = Connect(c.nodes[c.leader].Address, o.Connections)
	return err
}

func nodeName(i int) string { return "node-" + strconv.Itoa(i+1) }

// Ports of nodes are below the range from which systems choose ports, also for outgoing
// connections: a port from that range could be taken before the node listens.
const (
	lowestPort   = 10_000
	portRange    = 20_000
	maxPortTries = 1000
)

// FreeAddresses returns unused ports of loopback, for processes that must know each other's before
// they start.
func FreeAddresses(n int) ([]string, error) {
	var addresses []string
	var errs []error
	var held []net.Listener // until all are known, so that they differ
	for tries := 0; len(addresses) < n; tries++ {
		address := fmt.Sprint("127.0.0.1:", lowestPort+rand.IntN(portRange))
		l, err := net.Listen("tcp", address)
		if err == nil {
			held, addresses = append(held, l), append(addresses, address)
		} else if tries > maxPortTries {
			errs = append(errs, err)
			break
		}
	}
	for _, l := range held {
		errs = append(errs, l.Close())
	}
	return addresses, errors.Join(errs...)
}

// Routes are the nodes.
func (c *Cluster) Routes() []Target {
	var routes []Target
	for _, r := range c.routes {
		routes = append(routes, r)
	}
	return routes
}

// KillNode ends one of them as a power switch would.
func (c *Cluster) KillNode(node int) error { return c.nodes[node].Kill() }

// RestartNode starts it again.
func (c *Cluster) RestartNode(node int) error { return c.nodes[node].start() }

// Check reports a leader other than the measured one.
func (c *Cluster) Check(ctx context.Context) error {
	leader, term, err := c.leaderAndTerm(ctx)
	if err == nil && (leader != c.leader || term != c.term) {
		err = WrongAnswer("LEADER_MOVED", "%s led in term %d, now %s leads in term %d", nodeName(c.leader), c.term, nodeName(leader), term)
	}
	return err
}

// Usage of all nodes together.
func (c *Cluster) Usage() (report.Usage, error) {
	var sum report.Usage
	var errs []error
	for _, n := range c.nodes {
		u, err := n.Usage()
		errs = append(errs, err)
		sum.PeakBytes += u.PeakBytes
		sum.WrittenBytes += u.WrittenBytes
		sum.CPUSeconds += u.CPUSeconds
	}
	return sum, errors.Join(errs...)
}

// Describe returns the number of nodes.
func (c *Cluster) Describe() []report.Fact {
	return []report.Fact{{Name: "nodes", Value: strconv.Itoa(len(c.nodes)) + ", each a process of its own on this machine, all data on one disk"}}
}

// Close stops the nodes.
func (c *Cluster) Close() error {
	var errs []error
	if c.Remote != nil {
		errs = append(errs, c.Remote.Close())
	}
	for _, r := range c.routes {
		errs = append(errs, r.Close())
	}
	for _, n := range c.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}
