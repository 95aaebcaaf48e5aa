package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"runlog/client/command/output"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestGoldenCluster shows what operators see.
func TestGoldenCluster(t *testing.T) {
	t.Parallel()
	exists := clusterServer(sampleCluster())
	exists.refuse = refusedMember(contract.ReasonMemberExists, "node n4: taken: it is a member already")
	unknown := clusterServer(sampleCluster())
	unknown.refuse = refusedMember(contract.ReasonMemberNotFound, `no such member: "n9"; the members are n1, n2, n3`)
	refused := clusterServer(sampleCluster())
	refused.refuse = refusedMember(contract.ReasonMembershipRefused, "node n3: refused: of the 2 voters that would be left, n1 would not answer")
	seeding := clusterServer(growing()[1])
	for name, test := range map[string]struct {
		fake *fakeServer // nil: one that is ill
		args string
	}{
		"cluster-status-narrow":    {nil, "cluster status"},
		"cluster-help":             {clusterServer(), "cluster"},
		"cluster-status":           {clusterServer(sampleCluster()), "cluster status"},
		"cluster-status-json":      {clusterServer(sampleCluster()), "cluster status -o json"},
		"cluster-status-ill":       {nil, "cluster status"},
		"cluster-status-seeding":   {seeding, "cluster status"},
		"cluster-status-none":      {clusterServer(leaderless()), "cluster status"},
		"cluster-status-unasked":   {clusterServer(), "cluster status --timeout 300ms"},
		"cluster-status-bad-watch": {clusterServer(), "cluster status --watch 1ms"},
		"cluster-doctor":           {clusterServer(sampleCluster()), "cluster doctor"},
		"cluster-doctor-json":      {clusterServer(leaderless()), "cluster doctor -o json"},
		"cluster-doctor-ill":       {nil, "cluster doctor"},
		"cluster-doctor-alone":     {clusterServer(alone()), "cluster doctor"},
		"cluster-doctor-dead":      {clusterServer(leaderDead()), "cluster doctor"},
		"cluster-doctor-majority":  {clusterServer(majorityDown()), "cluster doctor"},
		"cluster-doctor-deposed":   {clusterServer(deposed()), "cluster doctor"},
		"cluster-doctor-older":     {clusterServer(olderBuild()), "cluster doctor"},
		"cluster-doctor-disk":      {clusterServer(diskLow()), "cluster doctor"},
		"cluster-status-dead":      {clusterServer(leaderDead()), "cluster status"},
		"cluster-add":              {clusterServer(growing()...), "cluster add 10.0.0.4:7413"},
		"cluster-add-json":         {clusterServer(growing()...), "cluster add 10.0.0.4:7413 -o json"},
		"cluster-add-no-wait":      {clusterServer(growing()...), "cluster add 10.0.0.4:7413 --no-wait"},
		"cluster-add-for":          {clusterServer(growing()[:2]...), "cluster add 10.0.0.4:7413 --for 2s"},
		"cluster-add-exists":       {exists, "cluster add 10.0.0.4:7413"},
		"cluster-add-nothing":      {exists, "cluster add"},
		"cluster-remove":           {clusterServer(sampleCluster()), "cluster remove n3"},
		"cluster-remove-json":      {clusterServer(sampleCluster()), "cluster remove n3 -o json"},
		"cluster-remove-unknown":   {unknown, "cluster remove n9"},
		"cluster-remove-refused":   {refused, "cluster remove n3"},
		"cluster-transfer":         {clusterServer(sampleCluster()), "cluster transfer"},
		"cluster-transfer-json":    {clusterServer(sampleCluster()), "cluster transfer n1 -o json"},
		"cluster-transfer-same":    {clusterServer(sampleCluster()), "cluster transfer n2"},
		"cluster-release":          {clusterServer(held()), "cluster release"},
		"cluster-release-again":    {clusterServer(sampleCluster()), "cluster release -o json"},
		"cluster-status-held":      {clusterServer(held()), "cluster status"},
		"cluster-doctor-held":      {clusterServer(held()), "cluster doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			s := invocation{args: strings.Fields(test.args)}
			if name == "cluster-status-narrow" {
				s.width = 100
			}
			bubble.Test(t, func(t *testing.T) {
				fake := test.fake
				if fake == nil {
					fake = clusterServer(illCluster()) // Its times are before that of the bubble.
				}
				s.do(t.Context(), t, fake)
			})
			golden(t, name, s.text())
		})
	}
}

// held is a cluster that was restored and not released yet.
func held() *runlogv1.GetStatusResponse {
	s := sampleCluster()
	s.HeldReason, s.HeldSince = contract.ReasonClusterHeld.Info().Help, seconds(0)
	return s
}

// alone is a cluster of one node.
func alone() *runlogv1.GetStatusResponse {
	s := sampleCluster()
	s.Members, s.NodeId, s.FailureTolerance = s.Members[1:2], "n2", 0
	return s
}

// TestRemovedByALostTry: a member that was there and is gone when the call is made again was
// removed.
func TestRemovedByALostTry(t *testing.T) {
	fake := clusterServer(sampleCluster())
	fake.refuse = refusedMember(contract.ReasonMemberNotFound, `no such member: "n3"; the members are n1, n2`)
	s := invocation{args: []string{"cluster", "remove", "n3"}}
	s.do(t.Context(), t, fake)
	if s.code != output.ExitOK || !strings.Contains(s.stdout.String(), "n3 is removed: 2 voters, none may fail") {
		t.Error(s.text())
	}
}

// TestWatchedStatus: a terminal is drawn over, elsewhere and in JSON it is printed again, and
// Ctrl-C is the good end.
func TestWatchedStatus(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		width  int
		height int
		args   string
		want   string // before each answer
		wide   int
	}{
		"terminal": {width: 60, want: "\x1b[H", wide: 60},
		"low":      {width: 60, height: 8, want: "\x1b[H", wide: 60},
		"pipe":     {want: "At "},
		"json":     {args: " -o json", want: `{"clusterId"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := invocation{args: strings.Fields("cluster status --watch 100ms" + test.args), width: test.width, height: test.height}
			bubble.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				s.do(ctx, t, clusterServer(sampleCluster()))
			})
			if s.code != output.ExitOK || s.stderr.Len() > 0 || strings.Count(s.stdout.String(), test.want) < 2 {
				t.Errorf("%q", s.text())
			}
			for _, drawn := range strings.Split(s.stdout.String(), "\x1b[H") {
				if n := strings.Count(drawn, "\n"); test.height > 0 && n >= test.height {
					t.Errorf("%d lines on a terminal of %d would move it: %q", n, test.height, drawn)
				}
			}
			for line := range strings.Lines(s.stdout.String()) {
				line = strings.NewReplacer("\x1b[H", "", "\x1b[2J", "", "\x1b[J", "", "\x1b[K", "", "\r\n", "").Replace(line)
				if test.wide > 0 && len([]rune(line)) > test.wide {
					t.Errorf("wider than the terminal: %q", line)
				}
			}
		})
	}
}

// TestDoctorsJSONIsLines: each finding is one object.
func TestDoctorsJSONIsLines(t *testing.T) {
	s := invocation{args: []string{"cluster", "doctor", "-o", "json"}}
	s.do(t.Context(), t, clusterServer(illCluster()))
	if s.code != output.ExitFailed {
		t.Errorf("exit %d", s.code)
	}
	for line := range bytes.Lines(s.stdout.Bytes()) {
		var f struct{ Severity, Check, What, Do string }
		if err := json.Unmarshal(line, &f); err != nil || f.Severity == "" || f.Check == "" || f.What == "" || (f.Severity != "OK") != (f.Do != "") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestJudge shows what the golden files do not.
func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*runlogv1.GetStatusResponse)
		want   string
	}{
		"two voters":                {func(s *runlogv1.GetStatusResponse) { s.Members = s.Members[:2] }, "2 voters tolerate no more failures than 1 would"},
		"all on one host":           {func(s *runlogv1.GetStatusResponse) { onHost(s, "127.0.0.1") }, "n1 and n2 and n3 share the host 127.0.0.1"},
		"a follower without leader": {func(s *runlogv1.GetStatusResponse) { s.Members[0].State = runlogv1.MemberState_CANDIDATE }, "n1 follows no leader, though n2 leads"},
		"no leader, most are up":    {func(s *runlogv1.GetStatusResponse) { s.LeaderId = "" }, "no leader, though 3 of 3 voters answer"},
		"a non-voter does not answer": {func(s *runlogv1.GetStatusResponse) {
			m := sampleMember("4")
			m.Role, m.State, m.Error = runlogv1.MemberRole_NON_VOTER, runlogv1.MemberState_UNREACHABLE, "gone"
			s.Members = append(s.Members, m)
		}, "n4 does not answer at 10.0.0.4:7413: gone"},
	} {
		t.Run(name, func(t *testing.T) {
			s := proto.CloneOf(sampleCluster())
			test.change(s)
			doctor := invocation{args: []string{"cluster", "doctor"}}
			doctor.do(t.Context(), t, clusterServer(s))
			if !strings.Contains(doctor.stdout.String(), test.want) {
				t.Error(doctor.text())
			}
		})
	}
}

// TestServerThatSaysNothing: a node that waits for others takes connections, and is not taken for
// another kind of server.
func TestServerThatSaysNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var out, errs bytes.Buffer
	code := run(t.Context(), testSession(&out, &errs), []string{"--server", l.Addr().String(), "cluster", "doctor"})
	if code != output.ExitUnavailable || !strings.Contains(errs.String(), "accepts connections but does not answer") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}

func onHost(s *runlogv1.GetStatusResponse, host string) {
	for _, m := range s.GetMembers() {
		m.RaftAddress = host + m.GetRaftAddress()[strings.LastIndex(m.GetRaftAddress(), ":"):]
	}
}
