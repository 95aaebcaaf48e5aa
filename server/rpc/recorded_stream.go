package rpc

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// recordedStream is a stream of answers that is recorded before its last message is sent (SEC-11).
type recordedStream struct {
	grpc.ServerStream
	chain   *Chain
	method  *Method
	request any
}

// recorded returns a stream as its service has it.
func (c *Chain) recorded(m *Method, stream grpc.ServerStream) grpc.ServerStream {
	if m == nil || len(m.answered) == 0 {
		return stream
	}
	return &recordedStream{ServerStream: stream, chain: c, method: m}
}

// RecvMsg receives the request.
func (s *recordedStream) RecvMsg(m any) error {
	s.request = m
	return s.ServerStream.RecvMsg(m)
}

// SendMsg records the call before it sends the last message.
func (s *recordedStream) SendMsg(m any) error {
	if slices.ContainsFunc(s.method.answered, m.(proto.Message).ProtoReflect().Has) {
		if err := s.chain.recordDone(s.Context(), s.method, s.request, m); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}
