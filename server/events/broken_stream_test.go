package events_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
	"runlog/testbed/bubble/property"
)

// TestBrokenStreamsAPP3APP8: an append stream that breaks anywhere leaves complete requests behind:
// a prefix of those sent, with all that were answered. Sending all of them again stores the rest
// (APP-3, APP-8, APP-10).
func TestBrokenStreamsAPP3APP8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		property.Check(t, func(rt *rapid.T) {
			streams := make([]*breakingStream, rapid.IntRange(1, 3).Draw(rt, "streams"))
			for i := range streams {
				streams[i] = drawBreakingStream(rt, fmt.Sprint("run-", i))
			}
			restart := rapid.IntRange(0, 3).Draw(rt, "restart") == 3
			n := servertest.Start(t)
			defer n.Close()
			breakAll(n, streams, restart)
			for _, s := range streams {
				if err := s.check(n); err != nil {
					rt.Fatalf("%s: %v", s.run, err)
				}
			}
		})
	})
}

// breakingStream is a stream that ends before its time.
type breakingStream struct {
	run      string
	requests []*runlogv1.AppendEventsRequest
	// Where it breaks, if not earlier by itself: so many requests are made, and so many answers
	// taken, before the call is cancelled; so many bytes are written before the connection dies.
	sends, answers, bytes int
	// via connects to the node.
	via func(ctx context.Context, address string) (net.Conn, error)

	answered []*runlogv1.AppendStreamResponse
}

func drawBreakingStream(t *rapid.T, run string) *breakingStream {
	s := &breakingStream{run: run, bytes: 1 << 30}
	size := 0
	for i := range rapid.IntRange(1, 40).Draw(t, "requests") {
		req := &runlogv1.AppendEventsRequest{
			RunId: run, RequestId: fmt.Sprint(i),
			Events: servertest.Steps(fmt.Sprint(i, "-"), rapid.SampledFrom([]int{1, 2, 5, 20}).Draw(t, "events")),
		}
		pad := servertest.Payload(`{"pad":"` + strings.Repeat("x", rapid.SampledFrom([]int{0, 10, 3000}).Draw(t, "pad")) + `"}`)
		for _, e := range req.Events {
			pad(e)
		}
		size += proto.Size(req)
		s.requests = append(s.requests, req)
	}
	s.sends, s.answers = len(s.requests), len(s.requests)
	// rapid likes small numbers, which would break a stream before it has begun.
	twentieths := rapid.SampledFrom([]int{10, 15, 5, 18, 12, 8, 2, 20, 0})
	if rapid.Bool().Draw(t, "cut") {
		// In the middle of a request, of its length, or of the call's own head.
		s.bytes = size*twentieths.Draw(t, "twentieths of the bytes")/20 + rapid.IntRange(0, 300).Draw(t, "and bytes")
		return s
	}
	s.sends = s.sends * twentieths.Draw(t, "twentieths of the requests") / 20
	s.answers = s.sends * twentieths.Draw(t, "twentieths of their answers") / 20
	return s
}

// breakAll runs all streams at once until they are broken; the node may go away under them as well.
func breakAll(n *servertest.Node, streams []*breakingStream, restart bool) {
	var done sync.WaitGroup
	begun := make(chan struct{}, 1)
	for _, s := range streams {
		// Without a buffer, what is written does not wait for more.
		s.via = n.DialTo
		client := runlogv1.NewEventServiceClient(n.DialWith(grpc.WithContextDialer(s.dial), grpc.WithWriteBufferSize(0)))
		done.Go(func() { s.play(client, begun) })
	}
	if restart {
		<-begun
		n.Restart()
	}
	done.Wait()
}

// play sends and receives until the stream breaks. begun gets the first answer, or the end.
func (s *breakingStream) play(client runlogv1.EventServiceClient, begun chan<- struct{}) {
	tell := func() {
		select {
		case begun <- struct{}{}:
		default:
		}
	}
	defer tell()
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	stream, err := client.AppendStream(ctx)
	if err != nil {
		return
	}
	var sender sync.WaitGroup
	sender.Go(func() {
		for _, req := range s.requests[:s.sends] {
			if stream.Send(req) != nil {
				return
			}
		}
	})
	for len(s.answered) < s.answers {
		resp, err := stream.Recv()
		if err != nil {
			break
		}
		s.answered = append(s.answered, resp)
		tell()
	}
	sender.Wait()
}

// dial makes a connection that dies after s.bytes, once.
func (s *breakingStream) dial(ctx context.Context, address string) (net.Conn, error) {
	if s.bytes < 0 {
		return nil, errors.New("the connection was cut")
	}
	conn, err := s.via(ctx, address)
	left := s.bytes
	s.bytes = -1
	return &cutConn{Conn: conn, left: left}, err
}

// cutConn drops what is written after a number of bytes, and closes soon after. One goroutine
// writes.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(b []byte) (int, error) {
	arrives := min(len(b), c.left)
	n, err := c.Conn.Write(b[:arrives])
	if c.left -= arrives; arrives == len(b) {
		return n, err
	}
	time.AfterFunc(5*time.Millisecond, func() { _ = c.Close() })
	return len(b), err
}

// check looks at what the stream left behind, sends everything again, and looks once more.
func (s *breakingStream) check(n *servertest.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	whole, err := s.look(n)
	if err != nil {
		return err
	}
	if whole < len(s.answered) {
		return fmt.Errorf("%d requests are stored, %d were answered (APP-2)", whole, len(s.answered))
	}
	stream, err := n.Events.AppendStream(ctx)
	if err != nil {
		return err
	}
	for i, req := range s.requests {
		if err := stream.Send(req); err != nil {
			return err
		}
		resp, err := stream.Recv()
		if err != nil || resp.Status != nil {
			return fmt.Errorf("request %d again: %v, %w", i, resp, err)
		}
		for k, r := range resp.Results {
			if r.Idempotent != resp.Results[0].Idempotent || i < whole && !r.Idempotent {
				return fmt.Errorf("request %d, of which all was stored: %v, is answered with %v (APP-3)", i, i < whole, resp.Results)
			}
			if i < len(s.answered) && withoutFlags(r) != withoutFlags(s.answered[i].Results[k]) {
				return fmt.Errorf("request %d was answered with %v, then with %v (IDM-6)", i, s.answered[i], resp)
			}
		}
	}
	if whole, err = s.look(n); err == nil && whole != len(s.requests) {
		err = fmt.Errorf("%d requests are stored of %d that were acknowledged (APP-2)", whole, len(s.requests))
	}
	return err
}

// look returns how many requests are stored, from the first on. The run must contain nothing else:
// no partial requests, no duplicates, and all in order.
func (s *breakingStream) look(n *servertest.Node) (whole int, err error) {
	records, err := (&clients{node: n}).readRun(s.run)
	if err == nil {
		err = servertest.AuditRun(records)
	}
	if err != nil {
		return 0, err
	}
	for left := records; len(left) > 0; whole++ {
		if whole == len(s.requests) {
			return 0, fmt.Errorf("%d records beside all requests", len(left))
		}
		for _, e := range s.requests[whole].Events {
			if len(left) == 0 || left[0].GetStepId() != e.StepId {
				return 0, fmt.Errorf("request %d is not there as a whole: no %s in %v (APP-3)", whole, e.StepId, left)
			}
			left = left[1:]
		}
	}
	return whole, nil
}
