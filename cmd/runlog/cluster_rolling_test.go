//go:build unix

package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestRollingRestart proves APP-10 and APP-2 for an upgrade: every node is stopped with SIGTERM and
// started again, one after the other under load, and nothing fails that a retry does not cure.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, false)
	l := newClusterLoad(t, c, 4)
	l.begin()
	l.awaitAck(time.Now())
	began := time.Now()
	var longest time.Duration
	for round := range clusterRounds(t, 1) {
		for _, n := range c.all() {
			from := time.Now()
			if code := n.stop(t); code != 0 {
				t.Errorf("%s ended with exit code %d:\n%s", n.name, code, n.stderr)
			}
			stopped := time.Since(from)
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			n.start()
			n.ready(t)
			l.awaitAck(time.Now())
			gap := l.ledger.longestGap(from, time.Now())
			t.Logf("%s stopped in %v; up again after %v; longest time without an acknowledged append %v", n.name, stopped, time.Since(from), gap)
			longest = max(longest, gap)
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("%v of rolling restarts; longest time without an acknowledged append %v", time.Since(began), longest)
	l.verify()
}
