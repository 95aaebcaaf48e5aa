package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
)

// maxStreams leaves room on the gateway's connection for calls that are not streams.
const maxStreams = rpc.MaxConcurrentStreams - 1000

// bufferBytes is the buffer size of the in-memory connection.
const bufferBytes = 1 << 20

// Listen opens the in-memory listener on which the gRPC server serves the gateway.
func Listen() *bufconn.Listener { return bufconn.Listen(bufferBytes) }

// Dial connects the gateway to the gRPC server behind a listener.
func Dial(inner *bufconn.Listener, limits decode.Limits) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:gateway",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return inner.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(structUnary),
		grpc.WithChainStreamInterceptor(make(gatewayStreams, maxStreams).open),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(limits.Bytes*2), grpc.MaxCallSendMsgSize(limits.Transport())),
	)
	if err != nil {
		return nil, fmt.Errorf("server: gateway: %w", err)
	}
	return conn, nil
}

// payloadAsStruct sets the default payload form of reads over HTTP to STRUCT.
func payloadAsStruct(req any) {
	switch r := req.(type) {
	case *runlogv1.ListEventsRequest:
		if r.PayloadForm == runlogv1.PayloadForm_FORM_UNSPECIFIED {
			r.PayloadForm = runlogv1.PayloadForm_STRUCT
		}
	case *runlogv1.ReadEventsRequest:
		if r.PayloadForm == runlogv1.PayloadForm_FORM_UNSPECIFIED {
			r.PayloadForm = runlogv1.PayloadForm_STRUCT
		}
	case *runlogv1.QueryEventsRequest:
		if r.PayloadForm == runlogv1.PayloadForm_FORM_UNSPECIFIED {
			r.PayloadForm = runlogv1.PayloadForm_STRUCT
		}
	case *runlogv1.ExportEventsRequest:
		if r.PayloadForm == runlogv1.PayloadForm_FORM_UNSPECIFIED {
			r.PayloadForm = runlogv1.PayloadForm_STRUCT
		}
	case *runlogv1.WatchRunRequest:
		if r.PayloadForm == runlogv1.PayloadForm_FORM_UNSPECIFIED {
			r.PayloadForm = runlogv1.PayloadForm_STRUCT
		}
	}
}

func structUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	payloadAsStruct(req)
	return invoke(ctx, method, req, reply, cc, opts...)
}

// gatewayStreams limits the open streams over HTTP. They share one connection with all other HTTP
// calls and must not use up its streams (D12).
type gatewayStreams chan struct{}

// open is the client's stream interceptor. The context of a stream ends with its HTTP request.
func (g gatewayStreams) open(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	select {
	case g <- struct{}{}:
	default:
		return nil, rpc.Encode(rpc.TooManyStreams())
	}
	context.AfterFunc(ctx, func() { <-g })
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &structClientStream{ClientStream: s}, nil
}

type structClientStream struct {
	grpc.ClientStream
	end error // the error of a stream that ended before it began
}

func (s *structClientStream) SendMsg(m any) error {
	payloadAsStruct(m)
	return s.ClientStream.SendMsg(m)
}

// Header waits for the begin of the stream. A refused call has no header; Header then returns its
// error, so that the gateway answers with a status as for any other call. A later error can only be
// written into the stream.
func (s *structClientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil || md != nil {
		return md, err
	}
	if s.end = s.ClientStream.RecvMsg(&emptypb.Empty{}); errors.Is(s.end, io.EOF) {
		return nil, nil
	}
	return nil, s.end
}

func (s *structClientStream) RecvMsg(m any) error {
	if s.end != nil {
		return s.end
	}
	return s.ClientStream.RecvMsg(m)
}
