package target

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestCluster starts nodes, kills the one that leads, starts it again and has the leadership
// transferred.
func TestCluster(t *testing.T) {
	alive, err := os.Create(filepath.Join(t.TempDir(), "alive"))
	if err == nil {
		err = syscall.Flock(int(alive.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	t.Setenv(asNode, alive.Name())
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, dir := t.Context(), t.TempDir()
	c, err := StartCluster(ctx, ClusterOptions{Binary: binary, Dir: dir, Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // once more, if it comes to that
	expectLeader := func(want int) {
		t.Helper()
		if got, err := c.Leader(ctx); err != nil || got != want {
			t.Errorf("node %d leads, %v; want %d", got, err, want)
		}
	}
	expectLeader(0)
	for i, target := range append(c.Routes(), c) {
		req := &runlogv1.AppendEventsRequest{RunId: "run-" + strconv.Itoa(i), Events: []*runlogv1.EventWrite{{EventId: "a", EventType: "RunStarted"}}}
		if res, err := target.Append(ctx, req); err != nil || !res.Results[0].Persisted {
			t.Errorf("%v, %v", res, err)
		}
	}
	if u, err := c.Usage(); err != nil || u.PeakBytes == 0 || len(c.Describe()) == 0 || c.Check(ctx) != nil {
		t.Errorf("%+v, %v, %v", u, err, c.Check(ctx))
	}
	if err := c.KillNode(0); err != nil {
		t.Fatal(err)
	}
	expectLeader(1)
	if e, wrong := errors.AsType[*AnswerError](c.Check(ctx)); !wrong || e.Reason != "LEADER_MOVED" {
		t.Error(e)
	}
	if err := errors.Join(c.RestartNode(0), c.InSync(ctx)); err != nil {
		t.Fatal(err)
	}
	if err := c.TransferLeadership(ctx, 1); err != nil {
		t.Fatal(err)
	}
	expectLeader(2)
	var pids []int
	for _, n := range c.nodes {
		pids = append(pids, n.process.ID())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
}

// TestClusterThatDoesNotStart: nodes that end are not waited for.
func TestClusterThatDoesNotStart(t *testing.T) {
	binary, err := os.Executable() // which refuses to be a node
	if err != nil {
		t.Fatal(err)
	}
	if _, err := StartCluster(t.Context(), ClusterOptions{Binary: binary, Dir: t.TempDir(), Nodes: 3}); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Error(err)
	}
	if _, err := StartCluster(t.Context(), ClusterOptions{Binary: binary, Dir: t.TempDir(), Nodes: 1}); err == nil || !strings.Contains(err.Error(), "want 2 to 9") {
		t.Error(err)
	}
}

func TestFreeAddresses(t *testing.T) {
	addresses, err := FreeAddresses(20)
	if slices.Sort(addresses); err != nil || len(slices.Compact(addresses)) != 20 {
		t.Errorf("%q, %v", addresses, err)
	}
}

// statusText is as a node writes it, with fields that this program does not know.
const statusText = `{"clusterId":"0123","leaderId":"node-2","term":"5","nodeId":"node-1","members":[
	{"nodeId":"node-1","raftId":"node-1/1","role":"VOTER","state":"FOLLOWER","grpcAddress":"127.0.0.1:1","commitIndex":"70","appliedIndex":"69","lastContact":"0.012s","term":"5"},
	{"nodeId":"node-2","raftId":"node-2/1","role":"VOTER","state":"LEADER","grpcAddress":"127.0.0.1:2","commitIndex":"71","appliedIndex":"71","clock":"2026-01-02T03:04:05Z","term":"5"},
	{"nodeId":"node-3","raftId":"node-3/1","role":"VOTER","state":"FOLLOWER","grpcAddress":"127.0.0.1:3","commitIndex":"70","appliedIndex":"71","seededBytes":"0","term":"5"}],
	"failureTolerance":1,"somethingNew":{"a":[1]}}`

func TestStatus(t *testing.T) {
	s, err := parseStatus([]byte(statusText))
	if err != nil {
		t.Fatal(err)
	}
	m, err := leaderOf(s)
	if err != nil || m.NodeId != "node-2" || m.GrpcAddress != "127.0.0.1:2" || m.CommitIndex != 71 || m.Term != 5 {
		t.Errorf("%v, %v", m, err)
	}
	for want, x := range map[string]struct {
		change func(s *runlogv1.GetStatusResponse)
		nodes  int
		far    *runlogv1.Member
	}{
		"":                              {nil, 3, &runlogv1.Member{CommitIndex: 70, AppliedIndex: 69}},
		"70 and has applied 69, of 71 ": {nil, 3, &runlogv1.Member{CommitIndex: 71}},
		"69, of 70 and 71":              {nil, 3, &runlogv1.Member{CommitIndex: 70, AppliedIndex: 71}},
		"has 3 members of 4":            {nil, 4, nil},
		"has no leader":                 {func(s *runlogv1.GetStatusResponse) { s.LeaderId = "" }, 3, nil},
		// it says that it follows
		"bench: the cluster has no l": {func(s *runlogv1.GetStatusResponse) { s.LeaderId = "node-1" }, 3, nil},
		"node-3 is VOTER and UNREACH": {func(s *runlogv1.GetStatusResponse) { s.Members[2].State = runlogv1.MemberState_UNREACHABLE }, 3, nil},
		"node-1 is NON_VOTER and FOL": {func(s *runlogv1.GetStatusResponse) { s.Members[0].Role = runlogv1.MemberRole_NON_VOTER }, 3, nil},
		"node-1 is VOTER and SEEDING": {func(s *runlogv1.GetStatusResponse) { s.Members[0].State = runlogv1.MemberState_SEEDING }, 3, nil},
	} {
		s, _ := parseStatus([]byte(statusText))
		if x.change != nil {
			x.change(s)
		}
		if err := behind(s, x.nodes, x.far); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := parseStatus([]byte(`{"leaderId":7`)); err == nil {
		t.Error("parsed")
	}
}
