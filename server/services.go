package server

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/access"
	"runlog/server/audit"
	"runlog/server/auth"
	"runlog/server/datadir"
	"runlog/server/events"
	gatewayv1 "runlog/server/gateway/runlog/v1"
	"runlog/server/members"
	"runlog/server/queue"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/server/runs"
	"runlog/server/snapshots"
	"runlog/server/watch"
)

// service is one row of the assembly: a gRPC service, its HTTP routes, and the function that opens
// it once the replica is open.
type service struct {
	desc    *grpc.ServiceDesc
	gateway rpc.GatewayFunc
	open    func(*Server, *parts) any
}

// services lists what a node serves. A new service is one line.
var services = []service{
	{&runlogv1.RunService_ServiceDesc, rpc.Gateway(runlogv1.NewRunServiceClient, gatewayv1.RegisterRunServiceHandlerClient), (*Server).openRuns},
	{&runlogv1.EventService_ServiceDesc, rpc.Gateway(runlogv1.NewEventServiceClient, gatewayv1.RegisterEventServiceHandlerClient), (*Server).openEvents},
	{&runlogv1.ProjectionService_ServiceDesc, rpc.Gateway(runlogv1.NewProjectionServiceClient, gatewayv1.RegisterProjectionServiceHandlerClient), (*Server).openProjection},
	{&runlogv1.AuditService_ServiceDesc, rpc.Gateway(runlogv1.NewAuditServiceClient, gatewayv1.RegisterAuditServiceHandlerClient), (*Server).openAudit},
	{&runlogv1.ClusterService_ServiceDesc, rpc.Gateway(runlogv1.NewClusterServiceClient, gatewayv1.RegisterClusterServiceHandlerClient), (*Server).openMembers},
	{&runlogv1.AccessService_ServiceDesc, rpc.Gateway(runlogv1.NewAccessServiceClient, gatewayv1.RegisterAccessServiceHandlerClient), (*Server).openAccess},
	{&runlogv1.QueueService_ServiceDesc, rpc.Gateway(runlogv1.NewQueueServiceClient, gatewayv1.RegisterQueueServiceHandlerClient), (*Server).openQueue},
	{&runlogv1.SignalService_ServiceDesc, rpc.Gateway(runlogv1.NewSignalServiceClient, gatewayv1.RegisterSignalServiceHandlerClient), (*Server).openSignals},
	{&runlogv1.SubscriptionService_ServiceDesc, rpc.Gateway(runlogv1.NewSubscriptionServiceClient, gatewayv1.RegisterSubscriptionServiceHandlerClient), (*Server).openSubscriptions},
}

// parts are objects that several services share.
type parts struct {
	encoded *wire.Snapshots
	// atLeader lets the leader answer a part of a call.
	atLeader func(ctx context.Context, method string, req any, here grpc.UnaryHandler) (any, error)
}

// registrations returns the services as listeners register them, before any of them is open.
func registrations(table []service) []*rpc.Service {
	list := make([]*rpc.Service, len(table))
	for i, x := range table {
		list[i] = &rpc.Service{Desc: x.desc, Gateway: x.gateway}
	}
	return list
}

// openServices opens the registered services. The cluster rejects calls before that.
func (s *Server) openServices(table []service) {
	shared := &parts{
		encoded:  wire.NewSnapshots(int(s.opts.MemoryBytes/32), s.drainTimeout),
		atLeader: s.chain(rpc.CallerClient).AtLeader,
	}
	for i, x := range table {
		s.services[i].Open(x.open(s, shared))
	}
}

// rules returns the rules that events of a run must meet.
func (s *Server) rules(runID string) contract.Options {
	own := strings.HasPrefix(runID, rpc.AccessRuns)
	rules := contract.Options{
		RunID:              runID,
		MaxPayloadBytes:    s.opts.MaxPayloadBytes,
		RefuseUnknownTypes: s.opts.RefuseUnknownTypes && !own,
		OpaqueKeys:         s.opts.OpaqueKeys,
	}
	switch {
	case own:
		// The access log tells what callers tried, whatever it looks like. A limit of payloads must
		// not stop what the node writes there, and with it every administrative call.
		rules.MaxPayloadBytes = contract.DefaultMaxPayloadBytes
	case s.opts.SecretScan != SecretOff:
		rules.Secret = s.judgeSecret
	}
	return rules
}

// importRules returns the rules that imported records of a run must meet. What another authority
// has recorded is history, and a record without its secret would have another digest.
func (s *Server) importRules(runID string) contract.Options {
	rules := s.rules(runID)
	rules.Secret, rules.RepeatedIDs = nil, true
	return rules
}

func (s *Server) openRuns(shared *parts) any {
	return runs.New(runs.Options{
		Node: s.replica, Projector: s.projector, Encoded: shared.encoded, Clock: s.replica.Stamps().Now, Rules: s.rules,
	})
}

func (s *Server) openEvents(shared *parts) any {
	return events.New(events.Options{Node: s.replica, AtLeader: shared.atLeader, Rules: s.rules, Memory: s.memory, Stopping: s.stopping})
}

// projection is ProjectionService. Two packages implement it.
type projection struct {
	unimplemented
	*snapshots.Service
	*watched
}

// unimplemented is embedded one level deeper than the methods of the parts, so that those take
// precedence.
type unimplemented struct {
	runlogv1.UnimplementedProjectionServiceServer
}

type watched = watch.Service

var _ runlogv1.ProjectionServiceServer = projection{}

func (s *Server) openProjection(shared *parts) any {
	w := watch.New(watch.Options{
		Node: s.replica, Projector: s.projector, Encoded: shared.encoded, Clock: s.replica.Stamps().Now,
		Heartbeat: s.opts.Heartbeat, SlowConsumer: s.opts.SlowConsumer, MaxCatchUp: s.opts.MaxCatchUp,
		Memory: s.memory, Registry: s.opts.Registry, Stopping: s.stopping,
	})
	s.onClose(w.Close)
	return projection{
		Service: snapshots.New(snapshots.Options{Node: s.replica, Projector: s.projector, Encoded: shared.encoded, Clock: s.replica.Stamps().Now}),
		watched: w,
	}
}

func (s *Server) openAudit(*parts) any {
	a := audit.New(audit.Options{
		Node: s.replica, Seen: s.projector, Records: s.projector, Signer: s.signer.Load(), ClusterName: s.cluster.Identity().ClusterID, SlowConsumer: s.opts.SlowConsumer,
		Memory: s.memory, Clock: s.replica.Stamps().Now, Logger: s.log, Stopping: s.stopping,
	})
	s.onClose(a.Close)
	return a
}

func (s *Server) openMembers(*parts) any {
	m := members.New(members.Options{
		Cluster: s.cluster, Node: s.replica, Leader: s.replica.Node().Leader, Store: s.replica.Store(), Sign: s.signer.Load().Sign,
		Version: s.opts.Version, Format: datadir.Format, SlowConsumer: s.opts.SlowConsumer, Clock: s.opts.Clock, Logger: s.log,
		Registry: s.opts.Registry, Stopping: s.stopping,
	})
	s.onClose(m.Close)
	return m
}

func (s *Server) openAccess(*parts) any {
	return access.New(access.Options{
		Node: s.replica, Usage: tenantUsage{s.projector}, Clock: s.opts.Clock,
		Ticket: func(i *auth.Identity) (string, time.Time, error) { return s.access.Load().NewTicket(i) },
	})
}

// maxWaitingLeases bounds the calls that wait for runs at the leader. Each has a few KiB. All may
// come over one connection of another member, on which appends must not wait for them.
const maxWaitingLeases = rpc.MaxConcurrentStreams - 1000

func (s *Server) openQueue(shared *parts) any {
	q := queue.New(queue.Options{
		Node: s.replica, Snapshots: s.projector, Encoded: shared.encoded, Rules: s.rules, Clock: s.replica.Stamps().Now, MaxWaiting: maxWaitingLeases,
		Logger: s.log, Registry: s.opts.Registry, Stopping: s.stopping,
	})
	s.onClose(q.Close)
	return q
}
