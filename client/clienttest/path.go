package clienttest

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
)

// path is the way from clients to one node. It forwards calls of any method, message by message,
// as bytes.
type path struct {
	faults *faults
	server *grpc.Server
	node   *grpc.ClientConn
	conns  *sockets // of clients
}

// openPath serves at the address of a node for clients, and forwards to its server.
func openPath(n *node, to string) (*path, error) {
	conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return n.wire.dial(ctx, n.host, address)
		}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	p := &path{faults: n.faults, node: conn, conns: newSockets(n.wire)}
	l, err := p.conns.listen(n.address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p.server = grpc.NewServer(grpc.ForceServerCodecV2(frameCodec{}), grpc.UnknownServiceHandler(p.handle),
		// The limit of the node counts.
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true))
	go func() { _ = p.server.Serve(l) }() // ends with close
	return p, nil
}

// close breaks all connections, and returns when no call is left.
func (p *path) close() {
	p.conns.cut()
	p.server.Stop()
	_ = p.node.Close() // fails only if it is closed
}

func (p *path) handle(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	switch method {
	case runlogv1.EventService_AppendEvents_FullMethodName, runlogv1.RunService_CreateRun_FullMethodName:
		return p.write(client, method)
	default:
		return p.forward(client, method)
	}
}

// outgoing returns the context of a forwarded call: with the client's deadline and metadata.
func outgoing(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewOutgoingContext(ctx, md)
}

// write forwards a unary write, with its faults.
func (p *path) write(client grpc.ServerStream, method string) error {
	var request, answer frame
	if err := client.RecvMsg(&request); err != nil {
		return err
	}
	plan := p.faults.next()
	ctx := outgoing(client.Context())
	var header, trailer metadata.MD
	var err error
	if plan.refusal != nil {
		err = rpc.Encode(plan.refusal)
	}
	for i := 0; i < plan.times && err == nil; i++ {
		err = p.node.Invoke(ctx, method, &request, &answer, grpc.ForceCodecV2(frameCodec{}), grpc.Header(&header), grpc.Trailer(&trailer))
	}
	plan.wait(ctx)
	if plan.lose {
		return p.lose(ctx)
	}
	client.SetTrailer(trailer)
	if err == nil {
		err = client.SetHeader(header)
	}
	if err == nil {
		err = client.SendMsg(&answer)
	}
	return err
}

// lose closes the connection of a call.
func (p *path) lose(ctx context.Context) error {
	if from, ok := peer.FromContext(ctx); ok {
		_ = from.Addr.(peerAddr).conn.Close() // the client gets the failure
	}
	return status.Error(codes.Unavailable, "the answer is lost")
}

// forward forwards a call of any other kind.
func (p *path) forward(client grpc.ServerStream, method string) error {
	ctx, cancel := context.WithCancel(outgoing(client.Context()))
	defer cancel()
	node, err := p.node.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodecV2(frameCodec{}))
	if err != nil {
		return err
	}
	s := &stream{path: p, client: client, node: node, ctx: ctx, sent: make(chan sent, maxInFlight), answers: make(chan *frame), ended: make(chan struct{})}
	if method == runlogv1.EventService_AppendStream_FullMethodName {
		s.plan = p.faults.next
	}
	// Both end with the call: its streams end with it.
	go func() {
		if err := s.takeRequests(); err != nil {
			cancel()
		}
	}()
	go s.takeAnswers()
	err = s.deliver()
	select {
	case <-s.ended:
		client.SetTrailer(node.Trailer())
	default:
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// maxInFlight bounds the messages of a stream that wait for their answers.
const maxInFlight = 1024

// stream is a forwarded stream.
//
//	client ─► takeRequests ─► node ─► takeAnswers ─► deliver ─► client
//	                └─── sent, only with plans ─────────┘
type stream struct {
	path   *path
	client grpc.ServerStream
	node   grpc.ClientStream
	ctx    context.Context
	plan   func() plan // of the next message; nil: messages have no faults

	told    bool          // the client has the header of the node
	sent    chan sent     // in the order of the answers; closed after the last message
	answers chan *frame   // of the node
	ended   chan struct{} // closed when the node has ended the stream
	end     error         // then; io.EOF: without an error
}

// sent is a message with its plan.
type sent struct {
	plan
	requestID string
}

// takeRequests forwards what the client sends.
func (s *stream) takeRequests() error {
	for {
		var request frame
		if err := s.client.RecvMsg(&request); errors.Is(err, io.EOF) {
			close(s.sent)
			return s.node.CloseSend()
		} else if err != nil {
			return err
		}
		m := sent{plan: plan{times: 1}}
		if s.plan != nil {
			m = sent{plan: s.plan(), requestID: request.requestID()}
			select {
			case s.sent <- m:
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		}
		for range m.times {
			_ = s.node.SendMsg(&request) // takeAnswers gets the cause of a failure
		}
	}
}

// takeAnswers takes what the node sends.
func (s *stream) takeAnswers() {
	defer close(s.ended)
	for {
		answer := new(frame)
		if s.end = s.node.RecvMsg(answer); s.end != nil {
			return
		}
		select {
		case s.answers <- answer:
		case <-s.ctx.Done():
			s.end = s.ctx.Err()
			return
		}
	}
}

// deliver sends the answers to the client, and returns the end of the stream.
func (s *stream) deliver() error {
	answers, messages := s.answers, s.sent
	if s.plan != nil {
		answers = nil // deliverOne takes them
	}
	for {
		select {
		case m, more := <-messages:
			if !more {
				messages = nil
			} else if err := s.deliverOne(m); err != nil {
				return err
			}
		case answer := <-answers:
			if err := s.send(answer); err != nil {
				return err
			}
		case <-s.ended:
			return s.end
		}
	}
}

// deliverOne sends the answer to one message of an AppendStream.
func (s *stream) deliverOne(m sent) error {
	var answer *frame
	if m.refusal != nil {
		answer = refused(m)
	}
	for range m.times {
		select {
		case answer = <-s.answers:
		case <-s.ended:
			return s.end
		}
	}
	m.wait(s.ctx)
	if m.lose {
		return s.path.lose(s.ctx)
	}
	if m.refusal != nil {
		return s.client.SendMsg(answer)
	}
	return s.send(answer)
}

// send sends an answer of the node, the first one with its header.
func (s *stream) send(answer *frame) error {
	if !s.told {
		s.told = true
		if header, err := s.node.Header(); err == nil {
			_ = s.client.SetHeader(header) // fails after a refusal, which has sent an empty one
		}
	}
	return s.client.SendMsg(answer)
}

// refused returns the answer to a message that is refused (APP-8).
func refused(m sent) *frame {
	answer, err := proto.Marshal(&runlogv1.AppendStreamResponse{RequestId: m.requestID, Status: status.Convert(rpc.Encode(m.refusal)).Proto()})
	if err != nil {
		panic(err) // the texts are valid
	}
	return &frame{answer}
}

// frame is a message as bytes.
type frame struct{ bytes []byte }

// requestID returns the request id of a message of an AppendStream, if the message can be decoded.
func (f *frame) requestID() string {
	var request runlogv1.AppendEventsRequest
	if err := proto.Unmarshal(f.bytes, &request); err != nil {
		return ""
	}
	return request.GetRequestId()
}

// frameCodec encodes frames. Its name is that of the codec of the messages inside.
type frameCodec struct{}

func (frameCodec) Name() string { return "proto" }

func (frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*frame).bytes)}, nil
}

func (frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*frame).bytes = data.Materialize()
	return nil
}
