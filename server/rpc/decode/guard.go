package decode

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
)

// Guard applies the limits to messages of gRPC services and answers each refused message with the
// contract's errors. gRPC itself answers INTERNAL to a message that it cannot decode, and sends
// that answer before an interceptor runs. So the codec reports no error: the guard wraps the
// message in a frame, the codec stores the fault there, and the guard answers with it instead of
// the service.
type Guard struct {
	limits Limits
	encode func(error) error
	calls  sync.Pool // of *call
}

// NewGuard makes a guard. encode converts a *contract.Error into a gRPC status.
func NewGuard(limits Limits, encode func(error) error) *Guard {
	g := &Guard{limits: limits, encode: encode}
	g.calls.New = func() any {
		c := &call{guard: g}
		// The closures are made once: each would be an allocation per call.
		c.decode, c.intercept, c.refuse = c.decodeMessage, c.interceptCall, c.refuseCall
		return c
	}
	return g
}

// ServerOptions returns the options of a gRPC server for guarded services.
func (g *Guard) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(guardedCodec),
		grpc.MaxRecvMsgSize(g.limits.Transport()),
	}
}

// Register returns the registrar for guarded services. The server must have been made with
// ServerOptions. unknown returns, for the full name of a method, what refuses messages with fields
// that this node does not know; nil: they are ignored.
func (g *Guard) Register(server grpc.ServiceRegistrar, unknown func(method string) Unknown) grpc.ServiceRegistrar {
	return registrar{g, server, unknown}
}

type registrar struct {
	guard   *Guard
	server  grpc.ServiceRegistrar
	unknown func(method string) Unknown
}

func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d := *desc
	d.Methods, d.Streams = slices.Clone(desc.Methods), slices.Clone(desc.Streams)
	for i := range d.Methods {
		name := "/" + d.ServiceName + "/" + d.Methods[i].MethodName
		d.Methods[i].Handler = r.guard.unary(d.Methods[i].Handler, appends[name], r.unknown(name))
	}
	for i := range d.Streams {
		name := "/" + d.ServiceName + "/" + d.Streams[i].StreamName
		d.Streams[i].Handler = r.guard.stream(d.Streams[i].Handler, !d.Streams[i].ClientStreams, r.unknown(name))
	}
	r.server.RegisterService(&d, impl)
}

// frame is what gRPC receives into: a message, its limits, and its fault.
type frame struct {
	msg    proto.Message
	limits Limits
	most   int // bytes
	// unknown refuses unknown fields; nil: they are ignored.
	unknown Unknown
	fault   *contract.Error
	// readable: the fault is in the number of elements, or an unknown field, and requestID is that
	// of the message. All other faults concern the whole message.
	readable  bool
	requestID string
	grant     budget.Grant // of a large message, while the service has it
}

// frame makes the frame of a call.
func (g *Guard) frame(ctx context.Context, unknown Unknown) frame {
	f := frame{limits: g.limits, most: g.limits.Bytes, unknown: unknown}
	// The limit has been applied to an HTTP body as JSON. The body may be larger as proto.
	if p, ok := peer.FromContext(ctx); ok && p.Addr.Network() == Gateway.Network() {
		f.most = g.limits.Transport()
	}
	return f
}

// Gateway is the address of the HTTP gateway of the same node. It has the network of the in-memory
// connection (bufconn) over which the gateway opens streams.
var Gateway net.Addr = gatewayAddr{}

type gatewayAddr struct{}

func (gatewayAddr) Network() string { return "bufconn" }
func (gatewayAddr) String() string  { return "bufconn" }

// Unmarshal decodes what a method of a guarded service receives, for a call without a connection.
func Unmarshal(data mem.BufferSlice, v any) error { return guardedCodec.Unmarshal(data, v) }

var guardedCodec = codec{encoding.GetCodecV2(grpcproto.Name)}

// codec is gRPC's own codec, except for framed messages.
type codec struct{ encoding.CodecV2 }

// Marshal encodes an answer.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *large:
		return m.marshal()
	case *Prepared:
		m.buf.Ref()
		return mem.BufferSlice{m.buf}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal stores the fault of a framed message in the frame.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if data.Len() > f.most {
		f.fault = f.limits.TooLarge()
		return nil
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	f.unmarshal(buf.ReadOnlyData())
	return nil
}

func (f *frame) unmarshal(wire []byte) {
	if f.requestID, f.fault = checkWire(f.msg, wire); f.fault != nil {
		f.readable = true
		return
	}
	m, isAppend := f.msg.(*runlogv1.AppendEventsRequest)
	if isAppend && readAppend(wire, m) {
		return
	}
	md := f.msg.ProtoReflect().Descriptor()
	if proto.Unmarshal(wire, f.msg) != nil {
		f.fault = explainWire(wire, md)
		return
	}
	if batch, ok := f.msg.(*runlogv1.BatchAppendRequest); f.unknown == nil || ok && isKnown(batch) {
		return
	}
	if bad := unknownFields(wire, md); len(bad) > 0 {
		f.fault, f.readable = f.unknown(bad), true
		if contract.TextFault(m.GetRequestId()) == "" {
			f.requestID = m.GetRequestId()
		}
	}
}

// call is a unary call inside the generated handler.
type call struct {
	guard *Guard
	frame frame
	// receive and interceptor are those that gRPC has passed.
	receive     func(any) error
	interceptor grpc.UnaryServerInterceptor
	ctx         context.Context
	opened      budget.Grant
	late        deadline

	decode    func(any) error
	intercept grpc.UnaryServerInterceptor
	refuse    grpc.UnaryHandler
}

func (g *Guard) unary(handler grpc.MethodHandler, isAppend bool, unknown Unknown) grpc.MethodHandler {
	return func(srv any, ctx context.Context, receive func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c := g.calls.Get().(*call)
		c.ctx, c.receive, c.interceptor = ctx, receive, interceptor
		c.frame = g.frame(ctx, unknown)
		c.open(isAppend)
		resp, err := handler(srv, ctx, c.decode, c.intercept)
		c.frame.grant.Release()
		c.opened.Release()
		c.frame, c.ctx, c.receive, c.interceptor = frame{}, nil, nil, nil
		if !c.late.fired {
			g.calls.Put(c)
		}
		if err != nil {
			return nil, err
		}
		return g.answer(ctx, resp)
	}
}

// open draws for an open call. An append takes of what is kept for appends if it must, and has
// little time to arrive then.
func (c *call) open(isAppend bool) {
	limits := &c.frame.limits
	c.late.after = limits.bodyTimeout()
	var err error
	if c.opened, err = limits.Memory.Acquire(budget.Arriving, budget.OpenCall); err != nil && isAppend {
		c.late.after = keptTimeout
		c.opened, err = limits.Memory.Acquire(budget.Append, budget.OpenCall)
	}
	c.frame.fault, _ = errors.AsType[*contract.Error](err)
}

func (c *call) decodeMessage(m any) error {
	c.frame.msg = m.(proto.Message)
	if c.frame.fault != nil {
		return nil // The call is refused before its message is read.
	}
	c.late.begin(c.ctx, &c.frame.limits)
	defer c.late.end()
	return c.frame.receive(c.ctx, true, c.receive)
}

// interceptCall replaces the method by the refusal, so that interceptors treat it like any other
// error.
func (c *call) interceptCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if c.frame.fault != nil {
		next, ctx = c.refuse, context.WithValue(ctx, refusedKey{}, true)
	}
	if c.interceptor == nil {
		return next(ctx, req)
	}
	return c.interceptor(ctx, req, info, next)
}

type refusedKey struct{}

// Refused reports whether the message of a call was refused. The refusal then answers instead of
// the service.
func Refused(ctx context.Context) bool { return ctx.Value(refusedKey{}) != nil }

func (c *call) refuseCall(context.Context, any) (any, error) {
	return nil, c.guard.encode(c.frame.fault)
}

func (g *Guard) stream(handler grpc.StreamHandler, single bool, unknown Unknown) grpc.StreamHandler {
	return func(srv any, ss grpc.ServerStream) error {
		opened, err := g.limits.Memory.Acquire(budget.Arriving, budget.OpenCall+headerBytes(ss.Context()))
		if err != nil {
			return g.encode(err)
		}
		defer opened.Release()
		s := &guardedStream{ServerStream: ss, guard: g, single: single, frame: g.frame(ss.Context(), unknown)}
		defer func() { s.answered.Store(ss.Context().Err() == nil) }()
		return handler(srv, s)
	}
}

// usualHeaders is the size, in bytes, of headers that the draw of an open call covers.
const usualHeaders = 4 << 10

// headerBytes is the size of unusual headers of a call. gRPC keeps them until its end.
func headerBytes(ctx context.Context) (bytes int64) {
	md, _ := metadata.FromIncomingContext(ctx)
	for key, values := range md {
		for _, value := range values {
			bytes += int64(len(key) + len(value))
		}
	}
	if bytes <= usualHeaders {
		return 0
	}
	return bytes
}

// guardedStream has one frame for all its messages, of which gRPC receives one at a time.
type guardedStream struct {
	grpc.ServerStream
	guard  *Guard
	single bool // The client sends one message.
	frame  frame
	late   deadline // of the message in SendMsg
	// answered is set when the service, and not the client, has ended the stream. Its context ends
	// soon after that, but its client may not have read all.
	answered atomic.Bool
}

// SendMsg sends an answer. A large one counts until its reader has taken it. While SendMsg waits,
// what gRPC has queued for the stream counts.
func (s *guardedStream) SendMsg(m any) error {
	a, err := s.guard.answer(s.Context(), m)
	if err != nil {
		return err
	}
	if a, ok := a.(*large); ok {
		a.stream = s
		defer a.drop()
	}
	queued, err := s.guard.limits.Memory.Acquire(budget.Arriving, sendQueue)
	if err != nil {
		return s.guard.encode(err)
	}
	defer queued.Release()
	s.late.after = stuckTimeout
	s.late.begin(s.Context(), &s.guard.limits)
	defer s.late.end()
	return s.ServerStream.SendMsg(a)
}

// RecvMsg returns a *Refusal for a message that is refused. The stream may continue after it.
func (s *guardedStream) RecvMsg(m any) error {
	s.frame.msg, s.frame.fault, s.frame.readable, s.frame.requestID = m.(proto.Message), nil, false, ""
	err := s.frame.receive(s.Context(), s.single, s.ServerStream.RecvMsg)
	// The service counts what waits for its answer.
	s.frame.grant.Release()
	if err != nil {
		return err
	}
	if s.frame.fault == nil {
		return nil
	}
	return &Refusal{Readable: s.frame.readable, RequestID: s.frame.requestID, Err: s.frame.fault, encode: s.guard.encode}
}

// Refusal is the error of a refused message of a stream.
type Refusal struct {
	Err *contract.Error
	// Readable is true if the message was refused because of its number of elements or an unknown
	// field, as a validator would do. It can then be answered like any other, with its RequestID.
	Readable  bool
	RequestID string

	encode func(error) error
}

// Error describes the fault of the message.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the fault as the contract's error.
func (r *Refusal) Unwrap() error { return r.Err }

// GRPCStatus returns the status with which gRPC answers when a service returns the refusal as its
// error.
func (r *Refusal) GRPCStatus() *status.Status { return status.Convert(r.encode(r.Err)) }
