package members

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/audit/proof"
	"runlog/proto/contract"
	nodev1 "runlog/proto/node/v1"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/cluster"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// Node is what the service needs of the replica.
type Node interface {
	Execute(context.Context, storage.Command) (storage.Outcome, error)
	ReadIndex(context.Context) error
}

// Options configure the service. All are required.
type Options struct {
	Cluster *cluster.Cluster
	Node    Node
	// Leader returns the Raft id and the address of the leader.
	Leader func() (address, id string)
	Store  *storage.Store
	// Sign returns a statement as a note with the cluster's signature, if the node has the key.
	Sign func(context.Context, *proof.Statement) (note string, signed bool, err error)
	// Version is that of the build, and Format that of its data directories.
	Version string
	Format  int
	// SlowConsumer is how long one message of a backup may wait for its reader.
	SlowConsumer time.Duration
	Clock        func() time.Time
	Logger       *slog.Logger
	Registry     *prometheus.Registry
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
}

// Service is ClusterService. Close ends it, after its calls.
type Service struct {
	runlogv1.UnimplementedClusterServiceServer
	opts    Options
	backups atomic.Int64   // in progress
	sends   sync.WaitGroup // of messages of backups; they end with their calls
	sent    prometheus.Counter
}

var _ runlogv1.ClusterServiceServer = (*Service)(nil)

// New makes the service.
func New(opts Options) *Service {
	s := &Service{opts: opts, sent: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "backup", Name: "sent_bytes_total",
		Help: "Bytes of files that were sent to backups.",
	})}
	opts.Registry.MustRegister(s.sent)
	return s
}

// Close waits for messages in Send. All calls must have ended.
func (s *Service) Close() error {
	s.sends.Wait()
	s.opts.Registry.Unregister(s.sent)
	return nil
}

// GetStatus asks every member for its state.
func (s *Service) GetStatus(ctx context.Context, _ *runlogv1.GetStatusRequest) (*runlogv1.GetStatusResponse, error) {
	survey, err := s.opts.Cluster.Survey(ctx)
	if err != nil {
		return nil, err
	}
	me := s.opts.Cluster.Identity()
	resp := &runlogv1.GetStatusResponse{
		ClusterId: me.ClusterID, NodeId: me.NodeID, LeaderId: cluster.NodeIDOf(survey.LeaderID), Term: survey.Term,
		FailureTolerance: uint32(survey.Tolerance), LeaderConfirmed: &survey.Confirmed,
		HeldReason: rpc.HeldReason(s.opts.Store), HeldSince: rpc.HeldSince(s.opts.Store),
	}
	for i := range survey.Members {
		resp.Members = append(resp.Members, encodeMember(&survey.Members[i], survey.LeaderID, s.opts.Store.Incarnation()))
	}
	return resp, nil
}

func encodeMember(s *cluster.Surveyed, leader string, in storage.Incarnation) *runlogv1.Member {
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
	m.AppliedPosition = rpc.FormatPosition(in, storage.Position(d.AppliedPosition))
	if d.LastContactNanos >= 0 {
		m.LastContact = durationpb.New(time.Duration(d.LastContactNanos))
	}
	m.Clock, m.ClockOffset, m.StartedAt = wire.Timestamp(d.Clock), durationpb.New(s.Offset), wire.Timestamp(d.StartedAt)
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

// AddMember invites a waiting node into the cluster.
func (s *Service) AddMember(ctx context.Context, req *runlogv1.AddMemberRequest) (*runlogv1.AddMemberResponse, error) {
	if req.RaftAddress == "" {
		return nil, rpc.Invalid("raftAddress", "is required: host:port at which the node listens for other nodes (--raft-listen)")
	}
	id, err := s.opts.Cluster.Add(ctx, req.RaftAddress)
	return &runlogv1.AddMemberResponse{NodeId: id}, memberError(err)
}

// RemoveMember removes a member from the cluster.
func (s *Service) RemoveMember(ctx context.Context, req *runlogv1.RemoveMemberRequest) (*runlogv1.RemoveMemberResponse, error) {
	if req.NodeId == "" {
		return nil, rpc.Invalid("nodeId", "is required: the name of the member")
	}
	return &runlogv1.RemoveMemberResponse{}, memberError(s.opts.Cluster.Remove(ctx, req.NodeId))
}

// TransferLeadership makes another voter the leader, waits until a majority confirms it, and
// returns the new leader.
func (s *Service) TransferLeadership(ctx context.Context, req *runlogv1.TransferLeadershipRequest) (*runlogv1.TransferLeadershipResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if err := s.opts.Cluster.Transfer(ctx, req.NodeId); err != nil {
		return nil, memberError(err)
	}
	s.opts.Cluster.AwaitConfirmed(ctx)
	_, leader := s.opts.Leader()
	return &runlogv1.TransferLeadershipResponse{LeaderId: cluster.NodeIDOf(leader)}, nil
}

// ReleaseHold ends the hold of a cluster that was restored.
func (s *Service) ReleaseHold(ctx context.Context, _ *runlogv1.ReleaseHoldRequest) (*runlogv1.ReleaseHoldResponse, error) {
	if !s.opts.Store.Applied().Held {
		return &runlogv1.ReleaseHoldResponse{}, nil
	}
	if err := s.execute(ctx)(storage.ReleaseHold()); err != nil {
		return nil, err
	}
	s.opts.Logger.Info("restored cluster released")
	return &runlogv1.ReleaseHoldResponse{Released: true}, nil
}

// transferTimeout bounds a transfer that an operator requests. The leader takes no appends during a
// transfer.
const transferTimeout = 5 * time.Second

// memberError converts an error of a membership change for an operator.
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
