package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/server/rpc/wire"
)

// maxStreams is below what the connection takes: a refusal with a reason is better than a wait.
const maxStreams = rpc.MaxConcurrentStreams - 1000

// streamWindow is how many bytes of a stream wait in the in-memory connection: gRPC's least.
const streamWindow = 64 << 10

// bufferBytes is the buffer size of the in-memory connection.
const bufferBytes = 1 << 20

// Listen opens the in-memory listener on which the gRPC server serves the gateway.
func Listen() *bufconn.Listener { return bufconn.Listen(bufferBytes) }

// Conn calls the services of the node: direct for a call with one answer, and over an in-memory
// connection to the gRPC server for a stream, which needs its flow control.
type Conn struct {
	direct  *rpc.Direct
	streams *grpc.ClientConn
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Dial connects the gateway to the gRPC server behind a listener.
func Dial(direct *rpc.Direct, inner *bufconn.Listener, limits decode.Limits) (*Conn, error) {
	streams, err := grpc.NewClient("passthrough:gateway",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inner.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// What a reader leaves unread waits in the service, which counts it, and not on the way.
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithChainStreamInterceptor((&gatewayStreams{make(chan struct{}, maxStreams), limits.Memory}).open),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(limits.Bytes*2), grpc.MaxCallSendMsgSize(limits.Transport())),
	)
	if err != nil {
		return nil, fmt.Errorf("server: gateway: %w", err)
	}
	return &Conn{direct, streams}, nil
}

// Invoke implements grpc.ClientConnInterface.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	askForText(ctx, args)
	return c.direct.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.streams.NewStream(ctx, desc, method, opts...)
}

// Close ends the streams.
func (c *Conn) Close() error { return c.streams.Close() }

// asked is a note about a call over HTTP, from the connection (Dial) to the writer of its answer.
type asked struct {
	// natural is set if the request names no form of payloads: the answer has them as objects.
	natural bool
}

type askedKey struct{}

// withAsked prepares a context for the note.
func withAsked(ctx context.Context) context.Context {
	return context.WithValue(ctx, askedKey{}, new(asked))
}

// askForText makes a read that names no form of payloads ask for their text, which the answer has
// as an object (ENV-8).
func askForText(ctx context.Context, req any) {
	m, ok := req.(proto.Message)
	if !ok {
		return
	}
	r := m.ProtoReflect()
	form := r.Descriptor().Fields().ByName("payload_form")
	if form == nil || r.Has(form) {
		return
	}
	r.Set(form, protoreflect.ValueOfEnum(runlogv1.PayloadForm_JSON.Number()))
	if note, ok := ctx.Value(askedKey{}).(*asked); ok {
		note.natural = true
	}
}

// asNatural tells the marshaler which answers have payloads as objects.
func asNatural(ctx context.Context, answer proto.Message) (any, error) {
	note, ok := ctx.Value(askedKey{}).(*asked)
	if _, pulled := answer.(*runlogv1.PullResponse); pulled || ok && note.natural {
		return wire.Natural{Message: answer}, nil
	}
	return answer, nil
}

// gatewayStreams limits the open streams over HTTP, which share one connection (D12).
type gatewayStreams struct {
	slots  chan struct{}
	memory *budget.Budget
}

// open is the client's stream interceptor. The context of a stream ends with its HTTP request.
func (g *gatewayStreams) open(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	select {
	case g.slots <- struct{}{}:
	default:
		return nil, rpc.Encode(rpc.TooManyStreams())
	}
	context.AfterFunc(ctx, func() { <-g.slots })
	s, err := open(rpc.PassHTTPClient(ctx), desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	t := &textStream{ClientStream: s, ctx: ctx, memory: g.memory}
	context.AfterFunc(ctx, t.letGo)
	return t, nil
}

// textStream is a stream over HTTP.
type textStream struct {
	grpc.ClientStream
	ctx    context.Context // with the note
	end    error           // the error of a stream that ended before it began
	memory *budget.Budget

	mu struct {
		sync.Mutex
		grant budget.Grant // of the message that is being written
		over  bool         // The stream has ended.
	}
}

// textForms is how often a message of a stream is in memory while it is written: as it came, as a
// message, and its text, which is larger and is copied once.
const textForms = 5

// count makes the message that is being written count, in place of the one before. Error:
// OVERLOADED.
func (s *textStream) count(m any) error {
	bytes := 0
	if message, ok := m.(proto.Message); ok {
		bytes = proto.Size(message)
	}
	if bytes <= budget.Uncounted {
		bytes = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.over {
		return nil
	}
	s.mu.grant.Release()
	var err error
	s.mu.grant, err = s.memory.Acquire(budget.Shared, textForms*int64(bytes))
	return err
}

func (s *textStream) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.over = true
	s.mu.grant.Release()
}

func (s *textStream) SendMsg(m any) error {
	askForText(s.ctx, m)
	return s.ClientStream.SendMsg(m)
}

// Header waits for the begin of the stream. A refused call has no header; Header then returns its
// error, so that the gateway answers with a status as for any other call. A later error can only be
// written into the stream.
func (s *textStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil || md != nil {
		return md, err
	}
	if s.end = s.ClientStream.RecvMsg(&emptypb.Empty{}); errors.Is(s.end, io.EOF) {
		return nil, nil
	}
	return nil, s.end
}

func (s *textStream) RecvMsg(m any) error {
	if s.end != nil {
		return s.end
	}
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	return rpc.Status(s.count(m))
}
