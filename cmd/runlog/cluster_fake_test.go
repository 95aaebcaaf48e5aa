package main

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeCluster answers with what the test put in.
type fakeCluster struct {
	runlogv1.UnimplementedClusterServiceServer

	statuses []*runlogv1.GetStatusResponse // one after the other, and then the last one again
	leader   string                        // the leader after a transfer without a name
	refuse   error                         // the answer to every change, when set

	backups [][]*runlogv1.BackupResponse // one after the other

	mu    sync.Mutex
	asked int
}

func (f *fakeCluster) GetStatus(context.Context, *runlogv1.GetStatusRequest) (*runlogv1.GetStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.statuses) == 0 {
		return nil, asStatus(unknownLeader())
	}
	f.asked++
	return f.statuses[min(f.asked, len(f.statuses))-1], nil
}

func (f *fakeCluster) AddMember(context.Context, *runlogv1.AddMemberRequest) (*runlogv1.AddMemberResponse, error) {
	return &runlogv1.AddMemberResponse{NodeId: "n4"}, f.refuse
}

func (f *fakeCluster) RemoveMember(context.Context, *runlogv1.RemoveMemberRequest) (*runlogv1.RemoveMemberResponse, error) {
	return &runlogv1.RemoveMemberResponse{}, f.refuse
}

func (f *fakeCluster) TransferLeadership(_ context.Context, req *runlogv1.TransferLeadershipRequest) (*runlogv1.TransferLeadershipResponse, error) {
	leader := req.GetNodeId()
	if leader == "" {
		leader = f.leader
	}
	return &runlogv1.TransferLeadershipResponse{LeaderId: leader}, f.refuse
}

func (f *fakeCluster) ReleaseHold(context.Context, *runlogv1.ReleaseHoldRequest) (*runlogv1.ReleaseHoldResponse, error) {
	return &runlogv1.ReleaseHoldResponse{Released: f.statuses[0].GetHeldReason() != ""}, f.refuse
}

// sampleCluster is one of three nodes on hosts of their own, and nothing is wrong with it.
func sampleCluster() *runlogv1.GetStatusResponse {
	return &runlogv1.GetStatusResponse{
		ClusterId: "6f1c2a9d0b7e4c53a1f08d2e9b64c715", LeaderId: "n2", Term: 7, NodeId: "n1", FailureTolerance: 1, LeaderConfirmed: proto.Bool(true),
		Members: []*runlogv1.Member{sampleMember("1"), sampleMember("2"), sampleMember("3")},
	}
}

// sampleMember is the follower of a name and host, and of node 2 the leader.
func sampleMember(n string) *runlogv1.Member {
	m := &runlogv1.Member{
		NodeId: "n" + n, RaftId: "n" + n + ".0011223" + n, RaftAddress: "10.0.0." + n + ":7413", Role: runlogv1.MemberRole_VOTER,
		State: runlogv1.MemberState_FOLLOWER, GrpcAddress: "10.0.0." + n + ":7410", HttpAddress: "10.0.0." + n + ":7411", Version: "1.4.0",
		Term: 7, LastIndex: 1234570, CommitIndex: 1234567, AppliedIndex: 1234567, AppliedPosition: "AAAAAAAS1oc",
		LastContact: durationpb.New(18 * time.Millisecond), Clock: seconds(60), ClockOffset: durationpb.New(3 * time.Millisecond),
		DiskFreeBytes: 310 << 30, DataBytes: 25 << 30, StartedAt: seconds(0),
	}
	switch n {
	case "1":
		m.ClockOffset, m.AppliedIndex = durationpb.New(0), 1234525
	case "2":
		m.State, m.LastContact = runlogv1.MemberState_LEADER, durationpb.New(0)
	}
	return m
}

// illCluster has every fault that a cluster with a leader can have.
func illCluster() *runlogv1.GetStatusResponse {
	s := sampleCluster()
	n1, n3 := s.Members[0], s.Members[2]
	n1.AppliedIndex, n1.LastContact, n1.ClockOffset = 1000000, durationpb.New(8*time.Second), durationpb.New(-900*time.Millisecond)
	n1.RaftAddress, n1.Alerts = "10.0.0.2:7513", []string{"PROJECTOR_LAG_HIGH"}
	n1.DiskFreeBytes = 1 << 30
	s.Members[1].Alerts = []string{"CLOCK_SKEW_HIGH", "DISK_LOW"}
	s.Members[1].GrpcAddress, s.Members[1].Version = "127.0.0.1:7410", "1.3.2"
	s.Members[2] = &runlogv1.Member{NodeId: "n3", RaftId: n3.GetRaftId(), RaftAddress: "127.0.0.1:7413", Role: runlogv1.MemberRole_VOTER,
		State: runlogv1.MemberState_UNREACHABLE, Error: "connection refused"}
	n4 := sampleMember("4")
	n4.Role, n4.StartedAt = runlogv1.MemberRole_NON_VOTER, timestamppb.New(time.Now().Add(-25*time.Minute-time.Second))
	n4.DiskFreeBytes, n4.DataBytes = 20<<30, 400<<30
	n5 := sampleMember("5")
	n5.State, n5.LastContact = runlogv1.MemberState_STOPPING, nil
	s.Members = append(s.Members, n4, n5)
	s.FailureTolerance = 0
	return s
}

// leaderless is a cluster of which one node is left.
func leaderless() *runlogv1.GetStatusResponse {
	s := sampleCluster()
	for _, m := range s.Members[1:] {
		resetTo(m, &runlogv1.Member{NodeId: m.GetNodeId(), RaftId: m.GetRaftId(), RaftAddress: m.GetRaftAddress(), Role: m.GetRole(),
			State: runlogv1.MemberState_UNREACHABLE, Error: "no answer within 1s"})
	}
	s.LeaderId, s.FailureTolerance, s.Members[0].State = "", 0, runlogv1.MemberState_CANDIDATE
	s.LeaderConfirmed = proto.Bool(false)
	return s
}

// leaderDead is a cluster whose leader has just died: its followers do not know it yet.
func leaderDead() *runlogv1.GetStatusResponse {
	s := sampleCluster()
	s.FailureTolerance, s.LeaderConfirmed = 0, proto.Bool(false)
	unreachable(s.Members[1])
	return s
}

// majorityDown is a cluster whose follower n1 is left, and does not know it yet.
func majorityDown() *runlogv1.GetStatusResponse {
	s := leaderDead()
	unreachable(s.Members[2])
	return s
}

// deposed is a cluster whose nodes answer, and whose leader has no majority.
func deposed() *runlogv1.GetStatusResponse {
	s := sampleCluster()
	s.LeaderConfirmed = proto.Bool(false)
	return s
}

// olderBuild is a cluster whose asked node cannot confirm its leader.
func olderBuild() *runlogv1.GetStatusResponse {
	s := sampleCluster()
	s.LeaderConfirmed = nil
	return s
}

// diskLow is a cluster whose follower n3 has less disk than it wants, though much.
func diskLow() *runlogv1.GetStatusResponse {
	s := sampleCluster()
	s.Members[2].Alerts = []string{"DISK_LOW"}
	return s
}

func unreachable(m *runlogv1.Member) {
	resetTo(m, &runlogv1.Member{NodeId: m.GetNodeId(), RaftId: m.GetRaftId(), RaftAddress: m.GetRaftAddress(), Role: m.GetRole(),
		State: runlogv1.MemberState_UNREACHABLE, Error: "connection refused"})
}

// growing are the states of a cluster that a fourth node joins.
func growing() (all []*runlogv1.GetStatusResponse) {
	with := func(change func(*runlogv1.Member)) {
		s := sampleCluster()
		if change != nil {
			m := sampleMember("4")
			change(m)
			s.Members = append(s.Members, m)
		}
		all = append(all, s)
	}
	with(nil)
	with(func(m *runlogv1.Member) {
		resetTo(m, &runlogv1.Member{NodeId: "n4", RaftAddress: m.GetRaftAddress(), Role: runlogv1.MemberRole_JOINING, State: runlogv1.MemberState_SEEDING,
			SeededBytes: 3 << 30, SeedBytes: 7 << 30})
	})
	with(func(m *runlogv1.Member) {
		m.Role, m.AppliedIndex = runlogv1.MemberRole_NON_VOTER, 1200000
	})
	with(func(*runlogv1.Member) {})
	return all
}

func refusedMember(reason contract.Reason, message string) error {
	return asStatus(&contract.Error{Reason: reason, Message: message})
}

// clusterServer is a fake whose cluster is in these states.
func clusterServer(statuses ...*runlogv1.GetStatusResponse) *fakeServer {
	f := &fakeServer{}
	f.statuses, f.leader = statuses, "n3"
	for i := range f.statuses {
		f.statuses[i] = proto.CloneOf(f.statuses[i])
	}
	return f
}

// resetTo makes m the same as to.
func resetTo(m, to *runlogv1.Member) {
	proto.Reset(m)
	proto.Merge(m, to)
}
