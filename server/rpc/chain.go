package rpc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server/auth"
	"runlog/server/cluster"
	"runlog/server/limits"
	"runlog/server/rpc/decode"
)

// MaxConcurrentStreams limits the streams of one gRPC connection.
const MaxConcurrentStreams = 10_000

// Service is a gRPC service that is registered at every listener.
type Service struct {
	Desc *grpc.ServiceDesc
	// Gateway registers the HTTP routes of the service; nil: it has none.
	Gateway GatewayFunc

	impl atomic.Pointer[any]
}

// Open sets what answers the calls. It is called after the service was registered and before a
// listener lets a call through: the listener for members serves while the node is still joining its
// cluster.
func (s *Service) Open(impl any) { s.impl.Store(&impl) }

// Impl returns what answers the calls; nil: the service is not open yet.
func (s *Service) Impl() any {
	if impl := s.impl.Load(); impl != nil {
		return *impl
	}
	return nil
}

// Leaders is what forwarding needs of the replica.
type Leaders interface {
	// Leading reports whether this node leads.
	Leading() bool
	// AtLeader calls do with the leader. It calls do again after an error that wraps
	// raft.ErrNotLeader.
	AtLeader(ctx context.Context, do func(*cluster.Leadership) error) error
	// NotLeader returns the error of a call that only the leader can answer.
	NotLeader() error
}

// ChainOptions configure a Chain. All are required.
type ChainOptions struct {
	Limits decode.Limits
	// Caller is the kind of caller at the listener: CallerClient, or CallerMember for a member that
	// forwards a client's call.
	Caller  string
	Metrics *Metrics
	Methods Methods
	// Leaders and Access are called for each call: a listener may serve before the replica is open.
	// Access returns nil before.
	Leaders func() Leaders
	Access  func() *Access
}

// Chain is the sequence of interceptors that every call passes between the wire and its service, on
// the listener for clients and on the one for members alike:
//
//	decode ─► in flight ─► metrics ─► errors to statuses ─► identity ─► roles
//	       ─► access log ─► forward to the leader ─► service
//
// Each listener has one chain, so that identity and roles also apply to a call that a member
// forwards. A service shows an identity only what its tenants have (auth.Identity.Sees).
type Chain struct {
	opts     ChainOptions
	guard    *decode.Guard
	inflight Inflight
	ok       sync.Map // *Method to prometheus.Observer, for calls answered with OK
}

// NewChain makes the chain of one listener.
func NewChain(opts ChainOptions) *Chain {
	return &Chain{opts: opts, guard: decode.NewGuard(opts.Limits, Status)}
}

// ServerOptions returns the options of a gRPC server for the chain.
func (c *Chain) ServerOptions() []grpc.ServerOption {
	return append(c.guard.ServerOptions(), grpc.ChainUnaryInterceptor(c.unary), grpc.ChainStreamInterceptor(c.stream))
}

// Register registers services behind the chain at a server that was made with ServerOptions.
func (c *Chain) Register(server grpc.ServiceRegistrar, services []*Service) {
	guarded := c.guard.Register(server, c.unknown)
	for _, s := range services {
		guarded.RegisterService(s.late(c), nil)
	}
}

// Guard returns the registrar for a service whose callers need no credentials. Only the limits of
// messages and of memory apply to it.
func (c *Chain) Guard(server grpc.ServiceRegistrar) grpc.ServiceRegistrar {
	return c.guard.Register(server, func(string) decode.Unknown { return nil })
}

// unknown returns what refuses the unknown fields of a write (ENV-11); nil for a read.
//
// A client gets a refusal for good. A member that forwards a call has taken the field, so it runs a
// newer build than this one. This node, which leads, must not store the event without the field,
// and must not refuse it for good: a producer drops such an event. So it refuses the call until the
// cluster is upgraded. Nothing is stored, and outboxes keep the event.
func (c *Chain) unknown(method string) decode.Unknown {
	switch m := c.opts.Methods[method]; {
	case m == nil || !m.writes:
		return nil
	case c.opts.Caller == CallerMember:
		return func(bad []contract.Violation) *contract.Error {
			return upgradeFirst("the leader runs an earlier build than the node that forwards the call: " + contract.NewError(bad).Message)
		}
	default:
		return contract.NewError
	}
}

// late returns the description of the service with handlers that read Impl at each call. They read
// it before the message of the call. So a call is refused if the service opens after that.
func (s *Service) late(c *Chain) *grpc.ServiceDesc {
	d := *s.Desc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		handler := d.Methods[i].Handler
		d.Methods[i].Handler = func(_ any, ctx context.Context, receive func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			impl := s.Impl()
			if impl == nil {
				through := interceptor
				interceptor = func(ctx context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
					return through(ctx, req, info, notOpen)
				}
			}
			return handler(impl, ctx, receive, interceptor)
		}
	}
	d.Streams = slices.Clone(d.Streams)
	for i := range d.Streams {
		handler := d.Streams[i].Handler
		m := c.opts.Methods["/"+d.ServiceName+"/"+d.Streams[i].StreamName]
		d.Streams[i].Handler = func(_ any, stream grpc.ServerStream) error { return c.serveStream(m, stream, handler, s.Impl()) }
	}
	return &d
}

// notOpen refuses a call that came before its service was open: nothing was stored.
func notOpen(context.Context, any) (any, error) { return nil, raft.ErrNotLeader }

// Inflight counts the calls that are being answered.
func (c *Chain) Inflight() *Inflight { return &c.inflight }

// unary passes one call through the chain. A method that is not in the table belongs to another
// service of the server, such as health, and is called directly.
func (c *Chain) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	m := c.opts.Methods[info.FullMethod]
	if m == nil {
		return next(ctx, req)
	}
	c.inflight.calls.Add(1)
	defer c.inflight.calls.Add(-1)
	begun := time.Now()
	resp, err := c.answer(ctx, m, req, next)
	err = Status(err)
	c.observer(m, status.Code(err)).Observe(time.Since(begun).Seconds())
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// answer lets a caller in, and answers here or at the leader.
func (c *Chain) answer(ctx context.Context, m *Method, req any, next grpc.UnaryHandler) (any, error) {
	ctx, err := c.admit(ctx, m, req)
	if err != nil {
		return nil, err
	}
	var resp any
	if m.atLeader {
		resp, err = c.answerAtLeader(ctx, m, req, next)
	} else {
		resp, err = next(ctx, req)
	}
	if err != nil {
		c.recordDenied(ctx, m, err)
		return nil, err
	}
	return resp, c.recordDone(ctx, m, req, resp)
}

// admit returns the context of a call with its identity, which has a role for the method. A refusal
// and an administrative call are recorded. req: that of a unary call, else nil.
func (c *Chain) admit(ctx context.Context, m *Method, req any) (context.Context, error) {
	ctx, err := c.identify(ctx)
	if err == nil {
		err = m.allow(auth.From(ctx))
	}
	if err != nil {
		c.recordDenied(ctx, m, err)
		return ctx, err
	}
	return ctx, c.recordAllowed(ctx, m, req)
}

// observer resolves the labels of OK answers once per method.
func (c *Chain) observer(m *Method, code codes.Code) prometheus.Observer {
	if code != codes.OK {
		return c.opts.Metrics.observer(m, c.opts.Caller, code)
	}
	o, ok := c.ok.Load(m)
	if !ok {
		o, _ = c.ok.LoadOrStore(m, c.opts.Metrics.observer(m, c.opts.Caller, code))
	}
	return o.(prometheus.Observer)
}

func (c *Chain) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	m := c.opts.Methods[info.FullMethod]
	if m == nil {
		return next(srv, ss)
	}
	c.inflight.calls.Add(1)
	defer c.inflight.calls.Add(-1)
	open := c.opts.Metrics.streams.WithLabelValues(m.name, c.opts.Caller)
	open.Inc()
	defer open.Dec()
	ctx, err := c.admit(ss.Context(), m, nil)
	if err != nil {
		return Status(err)
	}
	done, err := c.openStream(auth.From(ctx))
	if err != nil {
		c.recordDenied(ctx, m, err)
		return Status(err)
	}
	defer done()
	err = c.opts.Access().whileAllowed(ctx, ss, info.IsClientStream, func(ss grpc.ServerStream) error { return next(srv, ss) })
	if err != nil {
		c.recordDenied(ctx, m, err)
	}
	return Status(err)
}

// openStream counts a stream of a client for each tenant that its caller is restricted to (SEC-6).
// done ends it. A stream of a member is counted at the node that has the client.
func (c *Chain) openStream(i *auth.Identity) (done func(), err error) {
	var open []*limits.Tenant
	done = func() {
		for _, t := range open {
			t.CloseStream()
		}
	}
	if c.opts.Caller == CallerMember || i.Tenants.All {
		return done, nil
	}
	if len(i.Tenants.Names) == 0 {
		return nil, &contract.Error{Reason: contract.ReasonPermissionDenied,
			Message: i.Name + " has no tenant, and a stream would show it nothing; ask an admin of the cluster"}
	}
	l := c.opts.Access().Limits
	for _, name := range i.Tenants.Names {
		t := l.Tenant(name)
		if err := t.Open(); err != nil {
			done()
			return nil, err
		}
		open = append(open, t)
	}
	return done, nil
}
