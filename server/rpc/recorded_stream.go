package rpc

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// recordedStream is a stream of answers to one request, which the access log has (SEC-11).
type recordedStream struct {
	grpc.ServerStream
	chain   *Chain
	method  *Method
	request any
	// answer is the message of an administrative call that has the fields to record; nil: none yet.
	answer any
}

// serveStream calls the handler of a stream. Like other administrative calls, an administrative
// stream is recorded before it begins and after it has succeeded. Another one is recorded before
// the message that has the fields to record leaves.
func (c *Chain) serveStream(m *Method, stream grpc.ServerStream, handler grpc.StreamHandler, impl any) error {
	if m == nil || len(m.recorded) == 0 && len(m.answered) == 0 {
		return handler(impl, stream)
	}
	s := &recordedStream{ServerStream: stream, chain: c, method: m}
	err := handler(impl, s)
	if err != nil || s.answer == nil {
		return err
	}
	return c.recordDone(s.Context(), m, s.request, s.answer)
}

// RecvMsg receives the request.
func (s *recordedStream) RecvMsg(m any) error {
	s.request = m
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.chain.recordAllowed(s.Context(), s.method, m)
}

// SendMsg sends a message of the answer.
func (s *recordedStream) SendMsg(m any) error {
	switch {
	case !slices.ContainsFunc(s.method.answered, m.(proto.Message).ProtoReflect().Has):
	case s.method.administrative:
		s.answer = m
	default:
		if err := s.chain.recordDone(s.Context(), s.method, s.request, m); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}
