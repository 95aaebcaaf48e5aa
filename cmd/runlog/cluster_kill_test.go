//go:build unix

package main

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// clusterRounds is how often a scenario is played: make crash sets RUNLOG_CRASH_ROUNDS.
func clusterRounds(t *testing.T, usual int) int {
	s := os.Getenv("RUNLOG_CRASH_ROUNDS")
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("RUNLOG_CRASH_ROUNDS: %v", err)
	}
	return n
}

// TestKillNineLeader proves APP-2, APP-1, APP-5, APP-10, IDM-6 and READ-2 against SIGKILL of
// whoever leads: under load the leader is killed and started again, sometimes while it recovers,
// sometimes before the others have it back, over and over.
func TestKillNineLeader(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, true)
	l := newClusterLoad(t, c, 4)
	l.begin()
	var outages []time.Duration
	rounds := clusterRounds(t, 3)
	for round := range rounds {
		l.awaitAck(time.Now())
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		leader := c.leader()
		killed := time.Now()
		leader.kill()
		if rand.IntN(3) > 0 {
			outages = append(outages, l.awaitAck(killed))
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		leader.start()
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			leader.kill()
			leader.start()
		}
		if rand.IntN(3) > 0 {
			leader.ready(t)
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	l.verify()
	if len(outages) > 0 {
		slices.Sort(outages)
		t.Logf("writes went on after %v in the middle, %v at the most (%d of %d kills were timed)", outages[len(outages)/2], outages[len(outages)-1], len(outages), rounds)
	}
}

// TestKillNineAll proves APP-2 and IDM-6 against the loss of all processes at once: what was
// acknowledged is there when they are started again, in any order.
func TestKillNineAll(t *testing.T) {
	c := newProcCluster(t, 3, true)
	l := newClusterLoad(t, c, 4)
	l.begin()
	for range clusterRounds(t, 2) {
		l.awaitAck(time.Now())
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		var killed sync.WaitGroup
		for _, n := range c.all() {
			killed.Go(n.kill)
		}
		killed.Wait()
		nodes := c.all()
		rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		for _, n := range nodes {
			n.start()
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	for _, n := range c.all() {
		n.ready(t)
	}
	l.verify()
}
