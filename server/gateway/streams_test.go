package gateway

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/testbed/bubble"
)

// TestTooManyStreamsOverHTTPD12: streams over HTTP do not use up the connection of other calls.
func TestTooManyStreamsOverHTTPD12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		streams := gatewayStreams{slots: make(chan struct{}, 2)}
		open := func(ctx context.Context) error {
			_, err := streams.open(ctx, nil, nil, "", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				return nil, nil
			})
			return err
		}
		first, end := context.WithCancel(context.Background())
		for range 2 {
			if err := open(first); err != nil {
				t.Fatal(err)
			}
		}
		if err := open(context.Background()); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a third stream: %v", err)
		}
		end()
		bubble.Until(t, "ended streams make room", func() bool { return open(first) == nil })
	})
}

// textSource is a stream over HTTP with one message after another.
type textSource struct {
	grpc.ClientStream
	bytes int
}

func (s *textSource) RecvMsg(m any) error {
	m.(*runlogv1.ReadEventsResponse).Events = []*runlogv1.EventRecord{{RunId: strings.Repeat("x", s.bytes)}}
	return nil
}

// TestStreamMessageCountsSEC6: a message of a stream over HTTP counts, in all its forms, until the
// next one is asked for, or the request ends. One that does not fit ends the stream with
// OVERLOADED.
func TestStreamMessageCountsSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		memory := budget.New(40 << 20)
		streams := gatewayStreams{slots: make(chan struct{}, 2), memory: memory}
		ctx, end := context.WithCancel(context.Background())
		source := &textSource{bytes: 1 << 20}
		s, err := streams.open(ctx, nil, nil, "", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return source, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1 << 20, 3 << 20, 10} {
			source.bytes = size
			if err := s.RecvMsg(&runlogv1.ReadEventsResponse{}); err != nil {
				t.Fatal(err)
			}
			if used := memory.Used(); used/textForms/1024 != int64(size)/1024 {
				t.Errorf("%d bytes are in use for a message of %d", used, size)
			}
		}
		source.bytes = 2 << 20
		if err := s.RecvMsg(&runlogv1.ReadEventsResponse{}); err != nil {
			t.Fatal(err)
		}
		other, err := memory.Acquire(budget.Append, 25<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&runlogv1.ReadEventsResponse{}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a message without room: %v", err)
		}
		other.Release()
		if err := s.RecvMsg(&runlogv1.ReadEventsResponse{}); err != nil || memory.Used() == 0 {
			t.Fatalf("%v, %d bytes in use", err, memory.Used())
		}
		end()
		bubble.Until(t, "no bytes are in use", func() bool { return memory.Used() == 0 })
	})
}
