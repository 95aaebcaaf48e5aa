package procs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// deaf is how long the leader hears nothing. Without a bound on unacknowledged data, TCP would send
// the data of this time again only after about twice as long.
const deaf = 7 * time.Second

// TestLeaderCannotHear: nothing that other nodes send reaches the leader for a while. Another node
// leads. When the fault has ended, an append through the old leader succeeds long before as much
// time again has passed (APP-10). A busy machine may need a second try.
func TestLeaderCannotHear(t *testing.T) {
	t.Parallel()
	if why := WhyNoNetwork(); why != "" {
		t.Skip(why)
	}
	c := newCluster(t, Options{Seed: *seedFlag, Network: NewNetwork(t, 3)})
	var longer time.Duration
	for try := range 3 {
		if longer = c.hearNothing(t, c.index(c.Leader()), fmt.Sprint("run-", try)); longer < deaf/2 {
			return
		}
		t.Logf("appends through the old leader fail %v longer than the fault", longer)
	}
	t.Errorf("appends through the old leader fail %v longer than a fault of %v", longer, deaf)
}

// hearNothing drops everything that is sent to a node for a while, and returns how much longer
// appends through it fail.
func (c *Cluster) hearNothing(t *testing.T, node int, run string) time.Duration {
	t.Helper()
	conn, err := c.dial("deaf", node)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	events := runlogv1.NewEventServiceClient(conn)
	step := 0
	appendOne := func() error {
		step++
		ctx, cancel := context.WithTimeout(t.Context(), deaf/20)
		defer cancel()
		_, err := events.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{{
			RunId: run, EventType: "Noted", StepId: fmt.Sprint(step), TenantId: "t", ProjectId: "p", EnvironmentId: "e",
			PlanId: "plan", PlanVersion: "1", LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
		}}})
		return err
	}
	until := func(end time.Time) (err error) {
		for err = appendOne(); time.Now().Before(end); err = appendOne() {
			time.Sleep(deaf / 200)
		}
		return err
	}
	lose := func(on bool) {
		for other := range c.nodes {
			if other != node {
				c.opts.Network.lose(way{other, node, true}, on)
			}
		}
	}
	lose(true)
	err = until(time.Now().Add(deaf))
	lose(false)
	if err == nil {
		t.Error("an append succeeds at a node that hears nothing")
	}
	healed := time.Now()
	for appendOne() != nil {
		if time.Since(healed) > Patience {
			t.Fatal("appends through the old leader fail on")
		}
	}
	return time.Since(healed)
}
