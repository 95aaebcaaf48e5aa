package server

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	nodev1 "runlog/proto/node/v1"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/cluster"
	"runlog/storage"
)

type clusterService struct {
	runlogv1.UnimplementedClusterServiceServer
	s *Server
}

// GetStatus asks every member how it is.
func (c *clusterService) GetStatus(ctx context.Context, _ *runlogv1.GetStatusRequest) (*runlogv1.GetStatusResponse, error) {
	survey, err := c.s.cluster.Survey(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	me := c.s.cluster.Identity()
	resp := &runlogv1.GetStatusResponse{
		ClusterId: me.ClusterID, NodeId: me.NodeID, LeaderId: cluster.NodeIDOf(survey.LeaderID), Term: survey.Term,
		FailureTolerance: uint32(survey.Tolerance),
	}
	for i := range survey.Members {
		resp.Members = append(resp.Members, encodeMember(&survey.Members[i], survey.LeaderID))
	}
	return resp, nil
}

func encodeMember(s *cluster.Surveyed, leader string) *runlogv1.Member {
	m := &runlogv1.Member{
		NodeId: cluster.NodeIDOf(s.Member.ID), RaftId: s.Member.ID, RaftAddress: s.Member.Address,
		Role: runlogv1.MemberRole_NON_VOTER, State: runlogv1.MemberState_UNREACHABLE,
	}
	switch {
	case s.Invited:
		m.Role = runlogv1.MemberRole_JOINING
	case s.Member.Voter:
		m.Role = runlogv1.MemberRole_VOTER
	}
	if s.Err != nil {
		m.Error = cluster.Explain(s.Err)
		return m
	}
	d := s.About
	m.NodeId, m.RaftId, m.State = d.NodeId, d.RaftId, memberState(s, leader)
	m.GrpcAddress, m.HttpAddress, m.Version, m.Term = d.GrpcAddress, d.HttpAddress, d.Version, d.Term
	m.LastIndex, m.CommitIndex, m.AppliedIndex = d.LastIndex, d.CommitIndex, d.AppliedIndex
	m.AppliedPosition = formatPosition(storage.Position(d.AppliedPosition))
	if d.LastContactNanos >= 0 {
		m.LastContact = durationpb.New(time.Duration(d.LastContactNanos))
	}
	m.Clock, m.ClockOffset, m.StartedAt = timestamp(d.Clock), durationpb.New(s.Offset), timestamp(d.StartedAt)
	m.DiskFreeBytes, m.DataBytes, m.SeededBytes, m.SeedBytes = d.DiskFreeBytes, d.DataBytes, d.SeededBytes, d.SeedBytes
	m.Alerts = d.Alerts
	return m
}

func memberState(s *cluster.Surveyed, leader string) runlogv1.MemberState_Value {
	switch d := s.About; {
	case d.State == nodev1.NodeState_STOPPING:
		return runlogv1.MemberState_STOPPING
	case d.State != nodev1.NodeState_RUNNING:
		return runlogv1.MemberState_SEEDING
	case d.RaftId == leader:
		return runlogv1.MemberState_LEADER
	case d.LeaderRaftId == "":
		return runlogv1.MemberState_CANDIDATE
	default:
		return runlogv1.MemberState_FOLLOWER
	}
}

// AddMember invites a node that waits.
func (c *clusterService) AddMember(ctx context.Context, req *runlogv1.AddMemberRequest) (*runlogv1.AddMemberResponse, error) {
	if req.RaftAddress == "" {
		return nil, statusOf(invalid("raftAddress", "is required: host:port at which the node listens for other nodes (--raft-listen)"))
	}
	resp, err := atLeader(ctx, c.s, leaderRoute[*runlogv1.AddMemberResponse]{
		here: func() (*runlogv1.AddMemberResponse, error) {
			id, err := c.s.cluster.Add(ctx, req.RaftAddress)
			return &runlogv1.AddMemberResponse{NodeId: id}, memberError(err)
		},
		there: func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) (*runlogv1.AddMemberResponse, error) {
			return runlogv1.NewClusterServiceClient(conn).AddMember(ctx, req, opts...)
		},
	})
	return resp, statusOf(err)
}

// RemoveMember takes a member out of the cluster.
func (c *clusterService) RemoveMember(ctx context.Context, req *runlogv1.RemoveMemberRequest) (*runlogv1.RemoveMemberResponse, error) {
	if req.NodeId == "" {
		return nil, statusOf(invalid("nodeId", "is required: the name of the member"))
	}
	resp, err := atLeader(ctx, c.s, leaderRoute[*runlogv1.RemoveMemberResponse]{
		outlives: true,
		here: func() (*runlogv1.RemoveMemberResponse, error) {
			return &runlogv1.RemoveMemberResponse{}, memberError(c.s.cluster.Remove(ctx, req.NodeId))
		},
		there: func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) (*runlogv1.RemoveMemberResponse, error) {
			return runlogv1.NewClusterServiceClient(conn).RemoveMember(ctx, req, opts...)
		},
	})
	return resp, statusOf(err)
}

// TransferLeadership makes another voter the leader, and answers who leads then.
func (c *clusterService) TransferLeadership(ctx context.Context, req *runlogv1.TransferLeadershipRequest) (*runlogv1.TransferLeadershipResponse, error) {
	resp, err := atLeader(ctx, c.s, leaderRoute[*runlogv1.TransferLeadershipResponse]{
		outlives: true,
		here: func() (*runlogv1.TransferLeadershipResponse, error) {
			ctx, cancel := context.WithTimeout(ctx, transferTimeout)
			defer cancel()
			if err := c.s.cluster.Transfer(ctx, req.NodeId); err != nil {
				return nil, memberError(err)
			}
			_, leader := c.s.node.Leader()
			return &runlogv1.TransferLeadershipResponse{LeaderId: cluster.NodeIDOf(leader)}, nil
		},
		there: func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) (*runlogv1.TransferLeadershipResponse, error) {
			return runlogv1.NewClusterServiceClient(conn).TransferLeadership(ctx, req, opts...)
		},
	})
	return resp, statusOf(err)
}

// transferTimeout bounds a transfer that an operator asks for. While it is under way no appends are
// taken.
const transferTimeout = 5 * time.Second

// memberError tells an operator why the members were not changed.
func memberError(err error) error {
	switch {
	case err == nil, errors.Is(err, raft.ErrNotLeader):
		return err
	case errors.Is(err, cluster.ErrUnknownMember), errors.Is(err, raft.ErrNotMember):
		return &contract.Error{Reason: contract.ReasonMemberNotFound, Message: err.Error()}
	case errors.Is(err, cluster.ErrTaken):
		return &contract.Error{Reason: contract.ReasonMemberExists, Message: err.Error()}
	case errors.Is(err, cluster.ErrRefused), errors.Is(err, cluster.ErrAlone), errors.Is(err, raft.ErrLastVoter), errors.Is(err, raft.ErrNotTransferred):
		return &contract.Error{Reason: contract.ReasonMembershipRefused, Message: err.Error()}
	case errors.Is(err, raft.ErrUnknown):
		return &contract.Error{Reason: contract.ReasonOutcomeUnknown, Message: err.Error() + "; runlog cluster status shows whether it was made"}
	default:
		return err
	}
}

// usage tells the free bytes of the disk, and those that the node's data takes.
func (s *Server) usage() (free, data uint64) {
	free, _ = s.opts.DiskFree(s.opts.DataDir) // watchDisk warns
	return free, s.data.Load()
}

// measureData counts the bytes below the data directory.
func (s *Server) measureData() { s.data.Store(bytesBelow(s.opts.FS, s.opts.DataDir, dataDirDepth)) }

// bytesBelow counts the bytes of files that are at most so many levels below a directory. Files
// that go meanwhile count or not.
func bytesBelow(disk vfs.FS, dir string, levels int) (bytes uint64) {
	names, _ := disk.List(dir)
	for _, name := range names {
		path := disk.PathJoin(dir, name)
		info, err := disk.Stat(path)
		switch {
		case err != nil:
		case info.Mode().IsRegular():
			bytes += uint64(info.Size())
		case info.IsDir() && levels > 1: // a link that leads back up ends there
			bytes += bytesBelow(disk, path, levels-1)
		}
	}
	return bytes
}
