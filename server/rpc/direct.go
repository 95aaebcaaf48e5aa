package rpc

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/server/budget"
	"runlog/server/rpc/decode"
)

// Direct calls the services of its own node, for the HTTP gateway. A call passes the guard and the
// chain like one that comes over gRPC, and gets a message of its own, but there is no connection,
// whose frames and goroutines would cost more than the call. It calls no streams.
type Direct struct {
	intercept grpc.UnaryServerInterceptor
	memory    *budget.Budget
	methods   map[string]grpc.MethodHandler
}

// Direct returns the caller of services behind the chain.
func (c *Chain) Direct(services []*Service) *Direct {
	d := &Direct{intercept: c.unary, memory: c.opts.Limits.Memory, methods: map[string]grpc.MethodHandler{}}
	c.Register(d, services)
	return d
}

// RegisterService takes the methods of a guarded service.
func (d *Direct) RegisterService(desc *grpc.ServiceDesc, _ any) {
	for i := range desc.Methods {
		d.methods["/"+desc.ServiceName+"/"+desc.Methods[i].MethodName] = desc.Methods[i].Handler
	}
}

var protoCodec = encoding.GetCodecV2(grpcproto.Name)

// Invoke calls a method with a message, as grpc.ClientConnInterface does. The error is a status. A
// call with a deadline ends at it, whatever its service waits for.
func (d *Direct) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	handler := d.methods[method]
	if handler == nil {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	var a directAnswer
	if _, bounded := ctx.Deadline(); bounded {
		answered := make(chan directAnswer)
		go func() {
			a := d.call(ctx, handler, args)
			select {
			case answered <- a:
			case <-ctx.Done():
				a.body.Free()
				a.grant.Release()
			}
		}()
		select {
		case a = <-answered:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	} else {
		a = d.call(ctx, handler, args)
	}
	for _, o := range opts {
		if header, ok := o.(grpc.HeaderCallOption); ok {
			*header.HeaderAddr = a.header
		}
	}
	if a.err != nil {
		return a.err
	}
	defer a.body.Free()
	// The answer is in memory until its reader has it.
	context.AfterFunc(ctx, a.grant.Release)
	if err := protoCodec.Unmarshal(a.body, reply); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// directAnswer is the answer of a call: its encoded message, which the receiver frees, or a status.
type directAnswer struct {
	header metadata.MD
	body   mem.BufferSlice
	grant  budget.Grant
	err    error
}

// answerForms is how often the content of an answer is in memory until its reader has it: the
// service's message, its encoded form, the gateway's message, and its text, which is larger.
const answerForms = 5

// call lets a service answer. Both messages are encoded and decoded: the service gets one of its
// own, and may keep the answer, or have encoded parts of it.
func (d *Direct) call(ctx context.Context, handler grpc.MethodHandler, args any) (a directAnswer) {
	defer endOnPanic()
	request, err := protoCodec.Marshal(args)
	if err != nil {
		return directAnswer{err: status.Error(codes.Internal, err.Error())}
	}
	defer request.Free()
	var stream runtime.ServerTransportStream
	resp, err := handler(nil, directContext(ctx, &stream), func(m any) error { return decode.Unmarshal(request, m) }, d.intercept)
	if a.header, a.err = stream.Header(), err; err != nil {
		return a
	}
	if m, ok := resp.(proto.Message); ok {
		if size := proto.Size(m); size > budget.Uncounted {
			if a.grant, err = d.memory.Acquire(budget.Shared, answerForms*int64(size)); err != nil {
				a.err = Status(err)
				return a
			}
		}
	}
	if a.body, err = protoCodec.Marshal(resp); err != nil {
		a.err = status.Error(codes.Internal, err.Error())
	}
	return a
}

// directContext returns the context of a call as its service sees it.
func directContext(ctx context.Context, answer *runtime.ServerTransportStream) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	ctx = metadata.NewOutgoingContext(metadata.NewIncomingContext(ctx, md), nil)
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: decode.Gateway})
	return grpc.NewContextWithServerTransportStream(ctx, answer)
}

// endOnPanic ends the process after a panic, as gRPC does: net/http would continue with a node
// whose state is not known.
func endOnPanic() {
	if p := recover(); p != nil {
		stack := debug.Stack()
		go func() { panic(fmt.Sprintf("%v\n\n%s", p, stack)) }()
		select {}
	}
}
