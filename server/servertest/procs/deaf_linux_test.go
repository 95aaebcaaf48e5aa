package procs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

func TestDeafMeasure(t *testing.T) {
	if why := WhyNoNetwork(); why != "" {
		t.Skip(why)
	}
	for _, d := range []time.Duration{3 * time.Second, 7 * time.Second, 10 * time.Second, 14 * time.Second} {
		c := newCluster(t, Options{Seed: 1, Network: NewNetwork(t, 3), Flags: []string{"--log-level", "debug"}})
		_ = c
		leader := c.Leader()
		at := c.index(leader)
		conn, err := c.dial("probe", at)
		if err != nil {
			t.Fatal(err)
		}
		events := runlogv1.NewEventServiceClient(conn)
		n := 0
		try := func(run string) error {
			n++
			ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
			defer cancel()
			_, err := events.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{probeEvent(n, run)}})
			return err
		}
		for i := range 5 {
			if err := try("before"); err != nil {
				t.Fatal(i, err)
			}
		}
		var ways []way
		for other := range c.nodes {
			if other != at {
				ways = append(ways, way{other, at, true})
			}
		}
		for _, w := range ways {
			c.opts.Network.lose(w, true)
		}
		end := time.Now().Add(d)
		for time.Now().Before(end) {
			err = try("during")
			time.Sleep(50 * time.Millisecond)
		}
		fmt.Println("last during:", err)
		for _, w := range ways {
			c.opts.Network.lose(w, false)
		}
		healed := time.Now()
		var last error
		for {
			err := try("after")
			if err == nil {
				break
			}
			if last == nil || last.Error() != err.Error() {
				fmt.Println(time.Since(healed).Round(10*time.Millisecond), err)
				last = err
			}
			time.Sleep(20 * time.Millisecond)
		}
		fmt.Println("FAULT", d, "LONGER", time.Since(healed).Round(10*time.Millisecond))
		conn.Close()
		for _, n := range c.Nodes() {
			n.Kill()
		}
	}
}

func probeEvent(n int, run string) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{EventType: "Noted", RunId: run, TenantId: "t", ProjectId: "p", EnvironmentId: "e", PlanId: "plan", PlanVersion: "1", StepId: fmt.Sprint("s", n), LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now()}
}
