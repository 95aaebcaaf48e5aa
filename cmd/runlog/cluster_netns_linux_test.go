package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// netnsTests has the tests made that want root and network namespaces: make test-netns.
const netnsTests = "RUNLOG_NETNS"

// partition is a network in which each node of a cluster has a namespace of its own: nodes reach each other over a bridge,
// and the test reaches each over a link that is never cut.
type partition struct {
	t     *testing.T
	id    int
	nodes int
}

func newPartition(t *testing.T, nodes int) *partition {
	t.Helper()
	if os.Getenv(netnsTests) == "" {
		t.Skip("wants root and network namespaces: make test-netns")
	}
	p := &partition{t: t, id: os.Getpid() % 100000, nodes: nodes}
	t.Cleanup(p.remove)
	p.ip("link", "add", p.bridge(), "type", "bridge")
	p.ip("link", "set", p.bridge(), "up")
	for i := range nodes {
		ns, peer, client := p.space(i), fmt.Sprintf("rlp%d-%d", i, p.id), fmt.Sprintf("rlc%d-%d", i, p.id)
		p.ip("netns", "add", ns)
		p.ip("-n", ns, "link", "set", "lo", "up")
		p.ip("link", "add", peer, "type", "veth", "peer", "name", "peers", "netns", ns)
		p.ip("link", "set", peer, "master", p.bridge(), "up")
		p.ip("-n", ns, "addr", "add", p.peerIP(i)+"/24", "dev", "peers")
		p.ip("-n", ns, "link", "set", "peers", "up")
		p.ip("link", "add", client, "type", "veth", "peer", "name", "clients", "netns", ns)
		p.ip("addr", "add", fmt.Sprintf("10.214.%d.1/30", i), "dev", client)
		p.ip("link", "set", client, "up")
		p.ip("-n", ns, "addr", "add", p.clientIP(i)+"/30", "dev", "clients")
		p.ip("-n", ns, "link", "set", "clients", "up")
	}
	return p
}

func (p *partition) bridge() string      { return fmt.Sprintf("rlb-%d", p.id) }
func (p *partition) space(i int) string  { return fmt.Sprintf("runlog-%d-%d", p.id, i) }
func (*partition) peerIP(i int) string   { return fmt.Sprintf("10.213.77.%d", i+1) }
func (*partition) clientIP(i int) string { return fmt.Sprintf("10.214.%d.2", i) }

// ip runs the command of that name.
func (p *partition) ip(args ...string) {
	p.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		p.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (p *partition) remove() {
	// With a namespace go its links, and their other ends.
	for i := range p.nodes {
		_ = exec.Command("ip", "netns", "del", p.space(i)).Run()
	}
	_ = exec.Command("ip", "link", "del", p.bridge()).Run()
}

// blackhole drops what one node sends to another; on says whether it begins or ends.
func (p *partition) blackhole(from, to int, on bool) {
	p.t.Helper()
	verb := "del"
	if on {
		verb = "add"
	}
	p.ip("-n", p.space(from), "route", verb, "blackhole", p.peerIP(to)+"/32")
}

// cut cuts a node off in one of several ways, and returns what heals it.
func (p *partition) cut(i int) (how string, heal func()) {
	p.t.Helper()
	var others []int
	for j := range p.nodes {
		if j != i {
			others = append(others, j)
		}
	}
	routes := func(on bool, pairs ...[2]int) {
		for _, r := range pairs {
			p.blackhole(r[0], r[1], on)
		}
	}
	a, b := others[0], others[1]
	out, in := [][2]int{{i, a}, {i, b}}, [][2]int{{a, i}, {b, i}}
	one := [][2]int{{i, a}, {a, i}}
	switch rand.IntN(4) {
	case 0:
		p.ip("-n", p.space(i), "link", "set", "peers", "down")
		return "its link is down", func() { p.ip("-n", p.space(i), "link", "set", "peers", "up") }
	case 1:
		routes(true, out...)
		return "what it sends is dropped", func() { routes(false, out...) }
	case 2:
		routes(true, in...)
		return "what is sent to it is dropped", func() { routes(false, in...) }
	default:
		routes(true, one...)
		return "it and one other do not reach each other", func() { routes(false, one...) }
	}
}

// TestPartitions proves APP-2, APP-10 and READ-2 against networks: the leader is cut off from the others, wholly, one way,
// or from one of them, while clients reach every node, and is let in again.
func TestPartitions(t *testing.T) {
	p := newPartition(t, 3)
	c := &procCluster{t: t}
	t.Cleanup(c.tell)
	var raft []string
	for i := range p.nodes {
		at := p.clientIP(i)
		n := c.newNodeAt(fmt.Sprintf("n%d", i+1), at+":7410", at+":7411", at+":7412", p.peerIP(i)+":7413")
		n.space = p.space(i)
		raft = append(raft, n.raft)
	}
	nodes := c.all()
	for _, n := range nodes {
		n.flags = []string{"--bootstrap-expect", "3", "--join", strings.Join(raft, ",")}
		n.start()
	}
	for _, n := range nodes {
		n.ready(t)
	}
	l := newClusterLoad(t, c, 3)
	l.begin()
	for round := range clusterRounds(t, 6) {
		l.awaitAck(time.Now())
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		leader := c.leader()
		at := 0
		for i, n := range nodes {
			if n == leader {
				at = i
			}
		}
		began := time.Now()
		how, heal := p.cut(at)
		var asked sync.WaitGroup
		length := time.Duration(rand.IntN(3000)) * time.Millisecond
		for time.Since(began) < length {
			for _, n := range nodes {
				asked.Go(func() {
					run := l.ledger.freshRun(began)
					if run == "" {
						run = l.ledger.someRun()
					}
					l.askWaking(run, n)
				})
			}
			time.Sleep(50 * time.Millisecond)
		}
		went := l.awaitAck(began)
		heal()
		healed := time.Now()
		asked.Wait()
		for _, n := range nodes {
			l.awaitRead(n)
		}
		t.Logf("%s, which led: %s for %v; writes went on after %v; healed, it read again after %v", leader.name, how, healed.Sub(began), went, time.Since(healed))
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	l.verify()
}

// awaitRead waits until a node answers a linearizable read.
func (l *clusterLoad) awaitRead(n *clusterNode) {
	l.t.Helper()
	for deadline := time.Now().Add(clusterPatience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := l.lastSeq(context.Background(), "shared-0", n); err == nil {
			return
		}
	}
	l.t.Fatalf("%s answers no linearizable read", n.name)
}
