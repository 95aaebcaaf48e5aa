package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"runlog/bench/benchtest"
	"runlog/bench/report"
	"runlog/bench/target"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// fakeGroup is a target whose nodes share what they store; it takes appends while one of them
// leads.
type fakeGroup struct {
	fakeNode
	// election is how long the group has no leader.
	election time.Duration
	// stuck groups keep their leader when they are to transfer the leadership.
	stuck bool

	mu     sync.Mutex
	leader int
	dead   [3]bool
	until  time.Time // the group has no leader
	kills  []int
}

func (g *fakeGroup) system() target.System {
	return target.System{Name: "fake", Open: func(context.Context, string) (target.Target, error) { return g, nil }}
}

func (g *fakeGroup) Routes() []target.Target {
	var all []target.Target
	for i := range g.dead {
		all = append(all, fakeRoute{g, i})
	}
	return all
}

func (g *fakeGroup) Leader(context.Context) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leader, nil
}

func (g *fakeGroup) KillNode(node int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead[node] = true
	g.kills = append(g.kills, node)
	g.elect()
	return nil
}

func (g *fakeGroup) elect() {
	for g.leader = (g.leader + 1) % len(g.dead); g.dead[g.leader]; g.leader = (g.leader + 1) % len(g.dead) {
	}
	g.until = time.Now().Add(g.election)
}

func (g *fakeGroup) RestartNode(node int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead[node] = false
	return nil
}

func (g *fakeGroup) InSync(context.Context) error { return nil }

func (g *fakeGroup) TransferLeadership(context.Context, int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stuck {
		g.elect()
	}
	return nil
}

// Check is what a Checker says that was moved.
func (g *fakeGroup) Check(context.Context) error {
	if g.stuck {
		return target.WrongAnswer("LEADER_MOVED", "it has")
	}
	return nil
}

// fakeRoute is a node; those that follow take appends too.
type fakeRoute struct {
	g    *fakeGroup
	node int
}

func (r fakeRoute) Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	r.g.mu.Lock()
	dead, wait := r.g.dead[r.node], time.Until(r.g.until)
	r.g.mu.Unlock()
	if dead || wait > 0 {
		return nil, status.Error(codes.Unavailable, "no leader")
	}
	return r.g.Append(ctx, req)
}

func (fakeRoute) Close() error { return nil }

func newFakeGroup(election time.Duration) *fakeGroup {
	return &fakeGroup{fakeNode: fakeNode{benchtest.NewStore()}, election: election}
}

// measureGroup returns what a workload on a group comes to.
func measureGroup(t *testing.T, g *fakeGroup, workload string) *report.Result {
	t.Helper()
	rep, err := Run(t.Context(), brief(t, g.system(), workload))
	if err != nil {
		t.Fatal(err)
	}
	return &rep.Results[len(rep.Results)-1]
}
