//go:build unix

package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestPausedLeader proves READ-2, APP-2 and APP-10 against a leader that is stopped for longer than
// its lease and wakes as one that was deposed: linearizable reads that waited in its sockets show
// what was acknowledged meanwhile, or fail, and what it had under way is stored once or not at all.
func TestPausedLeader(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, true)
	l := newClusterLoad(t, c, 3)
	l.begin()
	for round := range clusterRounds(t, 3) {
		l.awaitAck(time.Now())
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		leader := c.leader()
		ends := leader.connections(6)
		leader.pause()
		paused := time.Now()
		pause := time.Duration(1+rand.IntN(5)) * clusterElection
		if round%2 == 0 {
			l.awaitAck(paused) // another leads
		}
		var asked sync.WaitGroup
		for deadline := paused.Add(pause); time.Now().Before(deadline); time.Sleep(time.Duration(5+rand.IntN(40)) * time.Millisecond) {
			l.askAll(&asked, ends, paused)
		}
		l.askAll(&asked, ends, paused)
		time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		leader.resume()
		for range 10 {
			l.askAll(&asked, ends, paused)
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		}
		asked.Wait()
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	l.verify()
}

// connections returns the node with as many connections of their own, which are up.
func (n *clusterNode) connections(count int) []*clusterNode {
	var ends []*clusterNode
	for range count {
		end := *n
		end.conn = dialNode(n.c.t, n.grpc)
		ends = append(ends, &end)
		if _, err := end.status(); err != nil {
			n.c.t.Logf("%s: %v", n.name, err)
		}
	}
	return ends
}

// askAll sends a read over each connection, of a run that was appended to after a moment.
func (l *clusterLoad) askAll(asked *sync.WaitGroup, ends []*clusterNode, after time.Time) {
	for _, end := range ends {
		asked.Go(func() {
			run := l.ledger.freshRun(after)
			if run == "" {
				run = l.ledger.someRun()
			}
			l.askWaking(run, end)
		})
	}
}

// askWaking sends a linearizable read to a node that is stopped, or was a moment ago.
func (l *clusterLoad) askWaking(run string, n *clusterNode) {
	floor := l.ledger.floor(run)
	ctx, cancel := context.WithTimeout(context.Background(), 20*clusterElection)
	defer cancel()
	if rand.IntN(3) == 0 {
		l.readSnapshotSince(ctx, run, n, floor)
		return
	}
	_, _ = l.lastSeqSince(ctx, run, n, floor) // what the node refuses is no fault
}

// TestPausedFollowers proves APP-2 and READ-2 with followers that are stopped for a while, so that
// the leader goes on without one of them; both at once for less than the leader's patience, and for
// more.
func TestPausedFollowers(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, true)
	l := newClusterLoad(t, c, 3)
	l.begin()
	for round := range clusterRounds(t, 2) {
		l.awaitAck(time.Now())
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		paused := c.followers(c.leader())
		if round%2 == 0 {
			paused = paused[rand.IntN(2):][:1]
		}
		for _, n := range paused {
			n.pause()
		}
		at := time.Now()
		time.Sleep(time.Duration(rand.IntN(4)) * clusterElection)
		if len(paused) == 1 {
			l.awaitAck(at)
		}
		for _, n := range paused {
			n.resume()
			l.askWaking(l.ledger.someRun(), n)
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	l.verify()
}

// TestMinorityAndMajorityLoss proves READ-2, APP-2, APP-10 and the table of errors: with one of
// three nodes gone all goes on; with two of them gone appends and linearizable reads are refused in
// time, with a reason, and local reads go on; when one comes back all does.
func TestMinorityAndMajorityLoss(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, true)
	l := newClusterLoad(t, c, 3)
	for round := range clusterRounds(t, 2) {
		l.begin()
		l.awaitAck(time.Now())
		nodes := c.followers(c.leader())
		down := []*clusterNode{nodes[0], nodes[1]}
		if round%2 == 0 {
			down[1] = c.leader()
		}
		down[0].kill()
		l.awaitAck(time.Now())
		l.end()
		down[1].kill()
		for _, n := range c.all() {
			if n != down[0] && n != down[1] {
				l.wantRefused(n)
			}
		}
		down[0].start()
		l.begin()
		at := time.Now()
		t.Logf("with a majority back writes went on after %v", l.awaitAck(at))
		down[1].start()
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	l.verify()
}

// wantRefused: a node without a majority says so, in time, and answers what it can.
func (l *clusterLoad) wantRefused(n *clusterNode) {
	l.t.Helper()
	const bound = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), bound+5*time.Second)
	defer cancel()
	run := l.ledger.someRun()
	events := runlogv1.NewEventServiceClient(n.conn)
	began := time.Now()
	var asked sync.WaitGroup
	asked.Go(func() {
		a := l.ledger.open(&runlogv1.AppendEventsRequest{RunId: "refused", Events: []*runlogv1.EventWrite{clusterEvent(began.String())}})
		resp, err := events.AppendEvents(ctx, a.req)
		switch reason := grpcReason(err); {
		case err == nil:
			l.t.Errorf("an append was taken without a majority (APP-2): %v", resp)
		case reason != "NO_LEADER" && reason != "NOT_LEADER" && reason != "OUTCOME_UNKNOWN" || time.Since(began) > bound:
			l.t.Errorf("an append without a majority: %v, after %v", err, time.Since(began))
		case reason == "OUTCOME_UNKNOWN":
			l.left = append(l.left, &clusterWriter{load: l, pending: a})
			a.maybe = true
		default:
			l.ledger.giveUp(a, string(reason))
		}
	})
	asked.Go(func() {
		_, err := events.ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: run})
		if grpcReason(err) != "NO_LEADER" && grpcReason(err) != "NOT_LEADER" || time.Since(began) > bound {
			l.t.Errorf("a linearizable read without a majority: %v, after %v (READ-2)", err, time.Since(began))
		}
	})
	asked.Go(func() {
		_, err := events.ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: run, Consistency: runlogv1.Consistency_LOCAL})
		if err != nil && grpcReason(err) != "RUN_NOT_FOUND" {
			l.t.Errorf("a local read without a majority: %v (READ-2)", err)
		}
	})
	asked.Wait()
}
