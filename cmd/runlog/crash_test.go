//go:build unix

package main

import (
	"os"
	"strconv"
	"testing"
	"time"

	"runlog/server/servertest/procs"
	"runlog/testbed/seed"
)

// smallCluster starts nodes that are this test binary, with clients at work on them. The nodes
// flush, compact and drop their log all the time.
func smallCluster(t *testing.T, nodes, clients int) *procs.Cluster {
	t.Helper()
	c := procs.New(t, procs.Options{Binary: os.Args[0], Env: smallEnv, Nodes: nodes, Seed: 9, Pad: 8 << 10})
	c.Start()
	c.Work(clients)
	return c
}

// Environments of a node: with small limits, and with those of an ordinary node.
var (
	smallEnv    = []string{asRunlog + "=1", smallNode + "=1"}
	ordinaryEnv = smallEnv[:1]
)

// crashRounds returns how many faults a test makes; make crash sets TEST_RUNLOG_CRASH_ROUNDS.
func crashRounds(t *testing.T, usual int) int {
	t.Helper()
	s := os.Getenv("TEST_RUNLOG_CRASH_ROUNDS")
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("TEST_RUNLOG_CRASH_ROUNDS: %v", err)
	}
	return n
}

// attack makes faults one after another, each while appends are acknowledged, and checks what the
// clients saw. leader: every fault is about the leader; otherwise the plan draws this. At last
// SIGTERM ends every node with exit code 0.
func attack(t *testing.T, c *procs.Cluster, rounds int, leader bool, kinds ...procs.Kind) {
	t.Helper()
	draws := seed.Rand(t)
	for i, f := range procs.Plan(9, len(c.Nodes()), rounds, 200*time.Millisecond, kinds) {
		c.AwaitAck(20 + draws.IntN(40))
		for _, n := range c.Nodes() {
			// Some nodes are ordinary ones, and open the data of small ones.
			if n.Env = smallEnv; i%4 == 3 {
				n.Env = ordinaryEnv
			}
		}
		f.Leader = f.Leader || leader
		c.Play([]procs.Fault{f})
		if t.Failed() {
			t.Fatalf("round %d: %s", i, f)
		}
	}
	t.Log(c.Settle())
	c.RepeatAssigned()
	for _, n := range c.Nodes() {
		n.Stop()
	}
}

// TestKillNine proves APP-1, APP-2, APP-11, IDM-6 and IDM-10 against SIGKILL of a single node under
// load, also while it recovers.
func TestKillNine(t *testing.T) {
	t.Parallel()
	attack(t, smallCluster(t, 1, 8), crashRounds(t, 6), false, procs.Kill, procs.KillAgain)
}

// TestKillNineLeader proves APP-1, APP-2, APP-5, APP-10, IDM-6, IDM-10 and READ-2 against SIGKILL
// of the leader under load, also while it recovers.
func TestKillNineLeader(t *testing.T) {
	t.Parallel()
	attack(t, smallCluster(t, 3, 8), crashRounds(t, 4), true, procs.Kill, procs.KillAgain)
}

// TestKillNineAll proves APP-2 and IDM-6 against SIGKILL of all nodes at once: they have what was
// acknowledged, whichever starts first.
func TestKillNineAll(t *testing.T) {
	t.Parallel()
	attack(t, smallCluster(t, 3, 8), crashRounds(t, 2), false, procs.KillAll)
}

// TestPausedNodes proves APP-2, APP-10 and READ-2 against the leader, any two nodes, and the leader
// with a follower, stopped for longer than the lease. The leader wakes deposed, with reads of
// clients in its sockets. A read shows what was acknowledged, or fails.
func TestPausedNodes(t *testing.T) {
	t.Parallel()
	attack(t, smallCluster(t, 3, 16), crashRounds(t, 4), false, procs.Pause, procs.PauseTwo)
}
