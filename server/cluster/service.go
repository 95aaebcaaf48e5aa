package cluster

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
	"runlog/server/cluster/admission"
	"runlog/server/peer"
	"runlog/storage"
)

// service implements the calls of other nodes.
type service struct {
	nodev1.UnimplementedNodeServiceServer
	c *Cluster
}

// open are the methods that a non-member may call.
var open = map[string]bool{
	nodev1.NodeService_Describe_FullMethodName: true,
	nodev1.NodeService_Invite_FullMethodName:   true,
	nodev1.NodeService_Join_FullMethodName:     true,
	// A node that starts asks before it takes part, and others that start answer.
	nodev1.NodeService_Meet_FullMethodName: true,
}

func (c *Cluster) admitUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := c.admitCall(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (c *Cluster) admitStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := c.admitCall(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, stream)
}

// admitCall lets members call every method, and others the open ones. A forwarded client call waits
// until the node takes part.
func (c *Cluster) admitCall(ctx context.Context, method string) error {
	who, known := peer.From(ctx)
	if !known {
		return status.Error(codes.PermissionDenied, "the caller has not said which node it is")
	}
	switch {
	case open[method]:
		return nil
	case admission.Seeding[method]:
		return c.maySeed(who)
	}
	own := strings.HasPrefix(method, "/"+nodev1.NodeService_ServiceDesc.ServiceName+"/")
	if c.running.Load() == nil || !own && c.leaving.Load() {
		return errDown
	}
	switch err := c.member(who); {
	case err == nil:
		return nil
	case own:
		return status.Error(codes.PermissionDenied, err.Message)
	default:
		// the forwarding node's client did nothing wrong, and retries elsewhere
		return notHere(err.Message)
	}
}

// Describe returns this node's description.
func (s *service) Describe(ctx context.Context, _ *nodev1.DescribeRequest) (*nodev1.DescribeResponse, error) {
	d := s.c.describe()
	if who, _ := peer.From(ctx); s.c.isForeign(who) {
		d = admission.ForForeign(d)
	}
	return d, nil
}

// Invite accepts the cluster that another node offers.
func (s *service) Invite(ctx context.Context, req *nodev1.InviteRequest) (*nodev1.InviteResponse, error) {
	if len(req.ClusterId) != len(storage.ClusterID{}) {
		return nil, status.Error(codes.InvalidArgument, "cluster_id does not have 16 bytes")
	}
	if who, _ := peer.From(ctx); string(who.Cluster[:]) != string(req.ClusterId) {
		return nil, status.Error(codes.PermissionDenied, "the caller does not belong to the cluster that it invites to")
	}
	id := fmt.Sprintf("%x", req.ClusterId)
	taken := false
	err := s.c.change(func(i *Identity) error {
		switch {
		case i.ClusterID == id:
			return nil
		case i.ClusterID != "":
			return status.Errorf(codes.FailedPrecondition, "node %s belongs to cluster %s", i.NodeID, i.ClusterID)
		}
		i.ClusterID, i.Founding, i.Via, taken = id, req.Founding, []string{req.RaftAddress}, true
		i.Member = req.Founding // a founder is one from the beginning
		return nil
	})
	if taken && err == nil {
		s.c.log.Info("invited to a cluster", "cluster", id, "by", req.RaftAddress)
	}
	return &nodev1.InviteResponse{}, err
}

// ConfirmTerm returns this node's current term.
func (s *service) ConfirmTerm(context.Context, *nodev1.ConfirmTermRequest) (*nodev1.ConfirmTermResponse, error) {
	r := s.c.running.Load()
	if r == nil {
		return nil, errDown
	}
	return &nodev1.ConfirmTermResponse{Term: r.node.Term()}, nil
}

// ReadPosition confirms that this node leads, and returns its position.
func (s *service) ReadPosition(ctx context.Context, _ *nodev1.ReadPositionRequest) (*nodev1.ReadPositionResponse, error) {
	r := s.c.running.Load()
	if r == nil {
		return nil, errDown
	}
	if err := r.node.ConfirmLeader(ctx); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	now := r.store.Applied()
	return &nodev1.ReadPositionResponse{Position: uint64(now.Position())}, nil
}

// OpenCheckpoint is served by the transfer source.
func (s *service) OpenCheckpoint(ctx context.Context, req *nodev1.OpenCheckpointRequest) (*nodev1.OpenCheckpointResponse, error) {
	r := s.c.running.Load()
	if r == nil {
		return nil, errDown
	}
	return r.source.OpenCheckpoint(ctx, req)
}

// ReadCheckpoint is served by the transfer source.
func (s *service) ReadCheckpoint(req *nodev1.ReadCheckpointRequest, stream grpc.ServerStreamingServer[nodev1.ReadCheckpointResponse]) error {
	r := s.c.running.Load()
	if r == nil {
		return errDown
	}
	return r.source.ReadCheckpoint(req, stream)
}

// CloseCheckpoint is served by the transfer source.
func (s *service) CloseCheckpoint(ctx context.Context, req *nodev1.CloseCheckpointRequest) (*nodev1.CloseCheckpointResponse, error) {
	r := s.c.running.Load()
	if r == nil {
		return nil, errDown
	}
	return r.source.CloseCheckpoint(ctx, req)
}

// errDown: the node shuts down and did nothing. Clients get the same error.
var errDown = notHere("the node does not take part in its cluster now")

// notHere: the node did nothing, and the caller must ask another node.
func notHere(why string) error {
	s, err := status.New(codes.Unavailable, why).WithDetails(
		&errdetails.ErrorInfo{Domain: "runlog", Reason: string(contract.ReasonNotLeader)})
	if err != nil {
		panic(err) // the detail is no message
	}
	return s.Err()
}

// describe returns this node's description.
func (c *Cluster) describe() *nodev1.DescribeResponse {
	me := c.Identity()
	cluster, _ := me.Cluster() // validated
	free, data := c.opts.Usage()
	d := &nodev1.DescribeResponse{
		NodeId: me.NodeID, RaftId: me.RaftID(), RaftAddress: c.opts.Advertise, GrpcAddress: c.opts.GRPC, HttpAddress: c.opts.HTTP,
		State: nodev1.NodeState_WAITING, Version: c.opts.Version, Format: Format, LastContactNanos: -1,
		DiskFreeBytes: free, DataBytes: data, StartedAt: c.started.UnixNano(), Expect: uint32(max(0, c.opts.Expect)),
		Alerts: c.opts.Alerts(), FeatureLevel: c.opts.FeatureLevel,
	}
	if me.ClusterID != "" {
		d.ClusterId, d.State = cluster[:], nodev1.NodeState_SEEDING
	}
	if s := c.receiving.Load(); s != nil {
		d.SeededBytes, d.SeedBytes = s.have.Load(), s.total.Load()
	}
	if r := c.running.Load(); r != nil {
		d.State = nodev1.NodeState_RUNNING
		c.describeRaft(d, r)
	}
	if c.leaving.Load() {
		d.State = nodev1.NodeState_STOPPING
	}
	d.Clock = c.opts.Clock().UnixNano()
	return d
}

func (c *Cluster) describeRaft(d *nodev1.DescribeResponse, r *running) {
	s, applied := r.node.Status(), r.store.Applied()
	if r.node.LogStalled() {
		d.Alerts = append(d.Alerts, raft.AlertLogStalled)
	}
	if c.roots.differing.Load() {
		d.Alerts = append(d.Alerts, AlertRootDiffers)
	}
	c.roots.describeTree(d)
	d.Term, d.LeaderRaftId, d.FirstIndex, d.CommitIndex = s.Term, s.LeaderID, s.FirstIndex, s.CommitIndex
	d.LastIndex, d.LastTerm, d.LastContactNanos = s.LastIndex, s.LastTerm, int64(s.LastContact)
	d.StoreLevel = r.store.Level()
	d.AppliedIndex, d.AppliedPosition = s.AppliedIndex, uint64(applied.Position())
	d.AppliedPersistedAt, d.RollingHash = applied.PersistedAt, applied.RollingHash[:]
	members := r.node.Members()
	for _, m := range members {
		d.MemberRaftIds = append(d.MemberRaftIds, m.ID)
	}
	d.GuestAddresses = c.guests(members)
}
