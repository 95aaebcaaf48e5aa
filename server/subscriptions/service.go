package subscriptions

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/budget"
	"runlog/server/cluster"
	"runlog/server/rpc"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
	"runlog/storage/tail"
)

// Node is the part of the replica that the service needs.
type Node interface {
	delivery.Node
	AtLeader(context.Context, func(*cluster.Leadership) error) error
	OtherLeader() string
}

// Options configure the service. All but SinkSecretsDir, OpenSink and DialSink are required.
type Options struct {
	Node Node
	// Cluster is the id of the cluster, in the source of CloudEvents.
	Cluster string
	// Tail has what was committed last.
	Tail *tail.Tail
	// Memory bounds the events that consumers are being sent, and Windows those that subscriptions
	// keep for their deliveries.
	Memory  *budget.Budget
	Windows *window.Memory
	// SinkSecretsDir has the secrets of sinks; empty: there are none.
	SinkSecretsDir string
	// OpenSink replaces the sinks of all subscriptions; nil: they have those of package sink.
	OpenSink func() delivery.Sink
	// DialSink connects to the receivers of webhooks; nil: over TCP.
	DialSink func(ctx context.Context, network, address string) (net.Conn, error)
	Clock    func() time.Time
	Logger   *slog.Logger
	Registry *prometheus.Registry
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
}

// Service is SubscriptionService.
type Service struct {
	runlogv1.UnimplementedSubscriptionServiceServer
	opts       Options
	node       Node
	dispatcher *delivery.Dispatcher
	metrics    *metrics
}

var _ runlogv1.SubscriptionServiceServer = (*Service)(nil)

// New makes the service. On the leader, it delivers from now on.
func New(opts Options) *Service {
	s := &Service{opts: opts, node: opts.Node}
	s.dispatcher = delivery.Start(delivery.Options{
		Node: opts.Node, Cluster: opts.Cluster, Tail: opts.Tail, Memory: opts.Windows, OpenSink: s.openSink, AckTimeout: ackTimeout,
		Clock: opts.Clock, Logger: opts.Logger, Stopping: opts.Stopping,
	})
	s.metrics = newMetrics(s.dispatcher, opts.Clock)
	opts.Registry.MustRegister(s.metrics)
	return s
}

// Close ends the deliveries. Options.Stopping must have ended, and all calls.
func (s *Service) Close() error {
	s.dispatcher.Close()
	s.opts.Registry.Unregister(s.metrics)
	return nil
}

// named is a request that names a subscription.
type named interface {
	GetTenantId() string
	GetSubscriptionId() string
}

// nameOf returns the subscription that a request names. One of a tenant that the caller does not
// see is not found (SEC-4).
func nameOf(ctx context.Context, req named) (subscription.Name, error) {
	n := subscription.Name{Tenant: req.GetTenantId(), ID: req.GetSubscriptionId()}
	var bad violations
	bad.id(n.ID)
	if n.Tenant == "" {
		tenant, fault := rpc.TenantOf(auth.From(ctx))
		n.Tenant = tenant
		bad.Add("tenantId", fault)
	} else {
		bad.Add("tenantId", contract.StoredScopeFault(n.Tenant))
	}
	if err := bad.Err(); err != nil {
		return n, err
	}
	if !sees(ctx, n.Tenant) {
		return n, notFound(n)
	}
	return n, nil
}

// sees reports whether the caller sees the subscriptions of a tenant; empty: those to all tenants.
func sees(ctx context.Context, tenant string) bool {
	i := auth.From(ctx)
	if tenant == "" {
		return i != nil && i.Tenants.All
	}
	return i.Sees(tenant)
}

// find returns a subscription as the store has it.
func (s *Service) find(n subscription.Name) (*subscription.Subscription, error) {
	row, err := subscription.Find(s.node.Store(), n)
	if err == nil && row == nil {
		err = notFound(n)
	}
	return row, err
}

// change records what was acknowledged, executes an operation about a subscription, and returns the
// subscription after it.
func (s *Service) change(ctx context.Context, n subscription.Name, op storage.Operation) (*runlogv1.Subscription, *storage.Outcome, error) {
	s.flush(ctx, n)
	return s.changeAsIs(ctx, n, op)
}

// flush records what was acknowledged, so that a change does not repeat it.
func (s *Service) flush(ctx context.Context, n subscription.Name) {
	if err := s.dispatcher.Flush(ctx, n); err != nil {
		s.opts.Logger.Warn("cannot settle before a change; events may repeat", "subscription", n, "err", err)
	}
}

// changeAsIs is change after flush. Another flush would make the version of an Update an old one.
func (s *Service) changeAsIs(ctx context.Context, n subscription.Name, op storage.Operation) (*runlogv1.Subscription, *storage.Outcome, error) {
	outcome, err := s.execute(ctx, op)
	if err != nil {
		return nil, nil, refusal(err)
	}
	s.dispatcher.Refresh(ctx)
	row, err := s.find(n)
	if err != nil {
		return nil, nil, err
	}
	return s.wire(row), &outcome, nil
}

func (s *Service) execute(ctx context.Context, op storage.Operation) (storage.Outcome, error) {
	cmd, err := storage.EncodeCommand(op)
	if err != nil {
		return storage.Outcome{}, err
	}
	return s.node.Execute(ctx, cmd)
}

func (s *Service) tokens(of string, parts ...string) rpc.TokenDomain {
	return rpc.NewTokenDomain(of, s.node.Store().Incarnation(), parts...)
}
