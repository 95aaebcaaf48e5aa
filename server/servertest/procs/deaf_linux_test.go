package procs

import (
	"context"
	"fmt"
	"net"
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
	for try := range 3 {
		if c.hearNothing(t, c.index(c.Leader()), fmt.Sprint("run-", try)) {
			return
		}
		t.Log("an ordinary connection is repaired before an append through the old leader succeeds")
	}
	t.Errorf("appends through the old leader fail as long as a connection without bounds, after a fault of %v", deaf)
}

// hearNothing drops everything that is sent to a node for a while. It reports whether an append
// through the node succeeds before the kernel has repaired a connection of another node to it.
func (c *Cluster) hearNothing(t *testing.T, node int, run string) bool {
	t.Helper()
	repaired := c.ordinary(t, (node+1)%len(c.nodes), node)
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
	whileDeaf := func() (err error) {
		for over := time.After(deaf); ; {
			err = appendOne()
			select {
			case <-over:
				return err
			case <-time.After(deaf / 200):
			}
		}
	}
	lose := func(on bool) {
		for other := range c.nodes {
			if other != node {
				c.opts.Network.lose(way{other, node, true}, on)
			}
		}
	}
	lose(true)
	arrived := repaired()
	err = whileDeaf()
	lose(false)
	if err == nil {
		t.Error("an append succeeds at a node that hears nothing")
	}
	for appendOne() != nil {
		if c.ctx.Err() != nil {
			t.Fatal("appends through the old leader fail on")
		}
	}
	select {
	case <-arrived:
		return false
	default:
		return true
	}
}

// ordinary makes a TCP connection between nodes as programs do that set no bounds. send sends
// something, and returns a channel that is closed when it has arrived.
func (c *Cluster) ordinary(t *testing.T, from, to int) (send func() (arrived <-chan struct{})) {
	t.Helper()
	var out, in net.Conn
	var l net.Listener
	network := c.opts.Network
	inSpace(t, network.space(to), func() (err error) {
		l, err = net.Listen("tcp", network.peerIP(to)+":0")
		return err
	})
	inSpace(t, network.space(from), func() (err error) {
		out, err = net.Dial("tcp", l.Addr().String())
		return err
	})
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	t.Cleanup(func() { _, _ = out.Close(), in.Close() })
	return func() <-chan struct{} {
		arrived := make(chan struct{})
		if _, err := out.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(arrived)
			_, _ = in.Read(make([]byte, 1))
		}()
		return arrived
	}
}
