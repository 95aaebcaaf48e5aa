//go:build unix

package procs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/docs/examples/counter"
	"runlog/proto/contract"
	counterv1 "runlog/proto/example/counter/v1"
	"runlog/server/servertest/mutants"
	"runlog/storage/machine"
	"runlog/testbed/await"
)

// newerLevel is the highest feature level of the next version.
const newerLevel = machine.FeatureLevel + 1

// successor builds the next version of this source: docs/extending.md is done to it, so that it
// supports one more feature level, and has the counter's machine at that level and its service.
func successor(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(source)
	if err != nil {
		t.Fatal(err)
	}
	const list = "storage/machine"
	level := func(name string) string { return fmt.Sprintf("%s = %d", name, newerLevel) }
	edits := []mutants.Edit{
		{Package: list, In: "FeatureLevel", With: level("FeatureLevel")},
		{
			Package: list, In: "All", Find: "return a", With: "return append(a, counter.Machine{})",
			Imports: []string{"runlog/docs/examples/counter"},
		}, {
			Package: "server", In: "services", Op: mutants.Before, With: `
				func init() {
					open := func(s *Server, _ *parts) any { return counters.New(s.replica) }
					services = append(services, service{&counterv1.CounterService_ServiceDesc, nil, open})
				}
				`,
			Imports: []string{"runlog/docs/examples/counters", "counterv1 runlog/proto/example/counter/v1"},
		},
	}
	if counter.Level != newerLevel {
		edits = append(edits, mutants.Edit{Package: "docs/examples/counter", In: "Level", With: level("Level")})
	}
	args, err := mutants.Arguments(t.TempDir(), mutants.Dirs{"": root}, edits)
	if err != nil {
		t.Fatal(err)
	}
	return binaryOf(t, root, "successor", args...)
}

// counters calls a node's CounterService, which the next version has.
func (n *Node) counters(call func(context.Context, counterv1.CounterServiceClient) (uint64, error)) (uint64, error) {
	conn, err := n.c.dial("operator", n.c.index(n))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return call(n.c.ctx, counterv1.NewCounterServiceClient(conn))
}

// increment adds 1 to the counter of the test: an operation of the next version.
func (n *Node) increment() (uint64, error) {
	return n.counters(func(ctx context.Context, c counterv1.CounterServiceClient) (uint64, error) {
		resp, err := c.Increment(ctx, &counterv1.IncrementRequest{Name: "upgrades", By: 1})
		return resp.GetValue(), err
	})
}

// counted reads the counter of the test.
func (n *Node) counted() (uint64, error) {
	return n.counters(func(ctx context.Context, c counterv1.CounterServiceClient) (uint64, error) {
		resp, err := c.GetCounter(ctx, &counterv1.GetCounterRequest{Name: "upgrades"})
		return resp.GetValue(), err
	})
}

// wantIncomplete wants the nodes of the next version to refuse its operation with a reason, a cause
// and a remedy, while a node leads. Nodes of this version do not know the call.
func (c *Cluster) wantIncomplete(older string, leader *Node, cause string) {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.Binary == older {
			if _, err := n.increment(); status.Code(err) != codes.Unimplemented {
				c.t.Errorf("%s, of the older version: %v", n.Name, err)
			}
			continue
		}
		c.lead(leader, func() bool {
			_, err := n.increment()
			st := status.Convert(err)
			switch refused := reasonOf(st) == contract.ReasonUpgradeIncomplete && strings.Contains(st.Message(), "Upgrade all members first"); {
			case refused && strings.Contains(st.Message(), cause):
				return true
			case !refused && st.Code() != codes.Unavailable:
				c.t.Fatalf("%s: %v, want %s", n.Name, err, contract.ReasonUpgradeIncomplete)
			}
			return false // Another node leads, or none.
		})
	}
}

// reasonOf returns the reason in a status.
func reasonOf(st *status.Status) contract.Reason {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return contract.Reason(info.Reason)
		}
	}
	return ""
}

// awaitLevel waits until the feature level has risen, so that the operation of the next version is
// taken. It returns how many increments have an effect, and how many may have one.
func (c *Cluster) awaitLevel() (least, most uint64) {
	c.t.Helper()
	await.Poll(c.t, "a higher feature level", func() bool {
		_, err := c.Leader().increment()
		if status.Code(err) != codes.FailedPrecondition {
			most++
		}
		if err == nil {
			least++
		}
		return err == nil
	})
	return least, most
}

// lead lets a node lead until something has happened. On a busy machine it may lose the leadership
// before.
func (c *Cluster) lead(n *Node, happened func() bool) {
	c.t.Helper()
	await.Poll(c.t, "what is expected while "+n.Name+" leads", func() bool {
		if c.Leader() == n {
			return happened()
		}
		if err := c.Transfer(n); err != nil {
			c.t.Logf("transfer to %s: %v", n.Name, err)
		}
		return false
	})
}

// leadsAndWaits lets a node lead until it says that another one keeps the feature level down.
func (c *Cluster) leadsAndWaits(n, older *Node) {
	c.t.Helper()
	c.lead(n, func() bool {
		for line := range strings.Lines(n.Said()) {
			if strings.Contains(line, "feature level not raised; retrying") && strings.Contains(line, "node "+older.Name+" (build ") {
				return true
			}
		}
		return false
	})
}

// TestUpgradeRaisesLevelAPP2 proves APP-2, IDM-6 and the feature level (docs/adr/0019-machines.md)
// over a rolling upgrade under load. Until the last node is upgraded, an operation of the next
// version is refused, whichever version leads. Then the level rises by itself, and every node takes
// the operation.
func TestUpgradeRaisesLevelAPP2(t *testing.T) {
	t.Parallel()
	older, newer := binary(t), successor(t)
	c := New(t, Options{Binary: older, Seed: *seedFlag, Keep: *keepFlag})
	c.Start()
	c.Work(3)
	c.AwaitAck(10)

	first := c.nextOther(newer)
	first.runs(newer)
	last := c.nextOther(newer)
	c.AwaitAck(10)
	c.wantIncomplete(older, last, "the leader's build does not know the call")

	for _, n := range c.nodes {
		if n != first && n != last {
			n.runs(newer)
		}
	}
	c.leadsAndWaits(first, last)
	c.AwaitAck(100) // The leader asks the members again and again meanwhile.
	c.wantIncomplete(older, first, fmt.Sprintf("needs feature level %d, the cluster is at level %d", newerLevel, machine.FeatureLevel))
	for _, n := range c.nodes {
		if strings.Contains(n.Said(), "feature level raised") {
			t.Errorf("%s has raised the level while %s is of the older version", n.Name, last.Name)
		}
	}

	last.runs(newer)
	least, most := c.awaitLevel()
	for _, n := range c.nodes {
		if _, err := n.increment(); err == nil {
			least++
		} else if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", n.Name, err)
		}
		most++
	}
	c.AwaitAck(50)
	t.Log(c.Settle())
	for _, n := range c.nodes {
		if got, err := n.counted(); err != nil || got < least || got > most {
			t.Errorf("%s has counted %d, %v; want %d to %d", n.Name, got, err, least, most)
		}
	}
}

// TestDowngradeBeforeLevelRoseAPP2 proves APP-2 and IDM-6 for an upgrade that an operator takes
// back before the last node is upgraded: a node that was stopped or killed serves with the older
// version again, also after it has led.
func TestDowngradeBeforeLevelRoseAPP2(t *testing.T) {
	t.Parallel()
	older, newer := binary(t), successor(t)
	c := New(t, Options{Binary: older, Seed: *seedFlag, Keep: *keepFlag})
	c.Start()
	c.Work(3)
	for _, end := range []func(*Node){(*Node).Stop, (*Node).Kill} {
		n := c.nextOther(newer)
		n.runs(newer)
		c.leadsAndWaits(n, c.nextOther(newer))
		c.AwaitAck(20)
		end(n)
		n.Binary = older
		n.Start()
		c.AwaitAck(20)
		n.Ready()
		c.lead(n, func() bool { return true })
		c.AwaitAck(20)
	}
	t.Log(c.Settle())
}

// TestDowngradeAfterLevelRoseAPP2 proves APP-2, IDM-6 and the feature level: once the level has
// risen, a node with the older version ends with one line that says what to do, whatever it has on
// stable storage and whether the others are up. They go on, and the node returns with the next
// version. The older version does not restore a backup either.
func TestDowngradeAfterLevelRoseAPP2(t *testing.T) {
	t.Parallel()
	older, newer := binary(t), successor(t)
	c := New(t, Options{Binary: newer, Seed: *seedFlag, Keep: *keepFlag})
	c.Start()
	c.Work(3)
	c.awaitLevel()
	refused := func(n *Node, why string, others ...*Node) {
		t.Helper()
		n.Binary = older
		n.Start()
		n.ExpectEnd()
		if len(others) > 0 && !n.saidOrEnded("requestVote") && n.Up() {
			t.Fatalf("%s finds a majority, or does not look for one: %s", n.Name, n.Said())
		}
		for _, o := range others {
			o.Start()
		}
		n.wantRefused(why)
		t.Logf("%s said last: %s", n.Name, n.last().lastLine())
		c.AwaitAck(20)
		n.Binary = newer
		n.Start()
		n.Ready()
		c.AwaitAck(20)
	}
	killed, stopped, alone := c.Nodes()[0], c.Nodes()[1], c.Nodes()[2]
	killed.Kill()
	refused(killed, "'s binary") // It reads the level in its log, or hears of it from the leader.
	stopped.Stop()
	refused(stopped, fmt.Sprintf("runlog: storage: the store is at feature level %d", newerLevel))
	for _, n := range c.Nodes() {
		n.Kill()
	}
	refused(alone, "'s binary", killed, stopped)

	c.opts.Binary = older
	c.outsider("late", c.join(), c.joinToken(1)).wantRefused("upgrade the node's binary")
	repo, restored := filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "restored")
	runJSON(t, &struct{}{}, newer, "backup", repo, "--server", c.Leader().grpc)
	err := output(exec.Command(older, "restore", repo, "--data-dir", restored))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("at feature level %d", newerLevel)) {
		t.Errorf("the older version restores a backup: %v", err)
	}
	if _, err := os.Stat(restored); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the refused restore has left a data directory: %v", err)
	}
	t.Log(c.Settle())
}
