package decode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// held is a service whose calls wait for the test.
type held struct {
	runlogv1.UnimplementedEventServiceServer
	t       *testing.T
	memory  *budget.Budget
	arrived chan int64 // what is in use when a call has its message
	answer  chan struct{}
}

func (h *held) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if _, ok := grpc.ServerTransportStreamFromContext(ctx).(incoming); !ok {
		h.t.Error("the stream of gRPC's transport does not offer what the guard reads with")
	}
	h.arrived <- h.memory.Used()
	<-h.answer
	return &runlogv1.AppendEventsResponse{Position: req.RequestId}, nil
}

func (h *held) ReadEvents(_ *runlogv1.ReadEventsRequest, s grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
	h.arrived <- h.memory.Used()
	<-h.answer
	return s.Send(&runlogv1.ReadEventsResponse{})
}

// serveHeld serves the service over connections, behind a guard.
func serveHeld(t *testing.T, limits Limits) (*held, runlogv1.EventServiceClient) {
	t.Helper()
	h := &held{t: t, memory: limits.Memory, arrived: make(chan int64, 10), answer: make(chan struct{})}
	guard := NewGuard(limits, encodeStatus)
	server := grpc.NewServer(guard.ServerOptions()...)
	runlogv1.RegisterEventServiceServer(guard.Register(server, unchecked), h)
	net := network.New(1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:"+listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(net.Dialer("127.0.0.1")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return h, runlogv1.NewEventServiceClient(conn)
}

// becomes waits until so many bytes are in use.
func becomes(t *testing.T, memory *budget.Budget, want int64) {
	t.Helper()
	bubble.Until(t, fmt.Sprintf("%d bytes are in use", want), func() bool { return memory.Used() == want })
}

// TestWhatTheBudgetNeedsOfGRPCSEC6: over a real connection, gRPC lets the guard read a message
// itself, encodes an answer with the guard's codec, and returns its buffer once it is sent. An
// upgrade of gRPC that changes any of this would take messages and answers out of the budget.
func TestWhatTheBudgetNeedsOfGRPCSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		memory := budget.New(64 << 20)
		h, client := serveHeld(t, Limits{Bytes: 8 << 20, Memory: memory})
		const size = 1 << 20
		done := make(chan error, 1)
		go func() {
			resp, err := client.AppendEvents(context.Background(), &runlogv1.AppendEventsRequest{RunId: "r", RequestId: strings.Repeat("x", size)})
			if err == nil && len(resp.Position) != size {
				err = errors.New("the answer differs")
			}
			done <- err
		}()
		if used := <-h.arrived; used < 2*size {
			t.Errorf("%d bytes are in use for a message of %d", used, size)
		}
		close(h.answer)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		becomes(t, memory, 0)
	})
}

// TestHeadersOfStreamsSEC6: an open stream counts with its headers, if they are long.
func TestHeadersOfStreamsSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		memory := budget.New(16 * budget.OpenCall)
		h, client := serveHeld(t, Limits{Bytes: 1 << 20, Memory: memory})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		long := strings.Repeat("x", 60<<10)
		if _, err := client.ReadEvents(metadata.AppendToOutgoingContext(ctx, "long", long), &runlogv1.ReadEventsRequest{RunId: "r"}); err != nil {
			t.Fatal(err)
		}
		if used := <-h.arrived; used < budget.OpenCall+int64(len(long)) {
			t.Errorf("%d bytes are in use for a stream with %d bytes of headers", used, len(long))
		}
		cancel()
		close(h.answer)
		becomes(t, memory, 0)
	})
}

// TestOpenCallsSEC6: every open call and stream counts. When there is no room, further ones are
// refused as OVERLOADED before their message is read, but for appends, which have a share of their
// own.
func TestOpenCallsSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		memory := budget.New(16 * budget.OpenCall)
		h, client := serveHeld(t, Limits{Bytes: 1 << 20, Memory: memory})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if _, err := client.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: "r"}); err != nil {
			t.Fatal(err)
		}
		if used := <-h.arrived; used != budget.OpenCall {
			t.Errorf("%d bytes are in use for an open stream", used)
		}
		rest, err := memory.Acquire(budget.Arriving, 11*budget.OpenCall)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: "r"}); status.Code(err) == codes.Unimplemented || err == nil {
			t.Errorf("a read without room: %v", err)
		}
		s, err := client.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: "r"})
		if err == nil {
			_, err = s.Recv()
		}
		if err == nil || status.Code(err) == codes.Unimplemented {
			t.Errorf("a stream without room: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := client.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: "r"})
			done <- err
		}()
		if used := <-h.arrived; used != 13*budget.OpenCall {
			t.Errorf("%d bytes are in use with an append", used)
		}
		close(h.answer)
		if err := <-done; err != nil {
			t.Errorf("an append, when only what is kept is left: %v", err)
		}
		rest.Release()
		becomes(t, memory, 0)
	})
}

// stuck is a stream of a connection whose client takes nothing.
type stuck struct {
	grpc.ServerStream
	ctx     context.Context
	sending chan struct{}
	freed   chan struct{}
}

func (s *stuck) Context() context.Context  { return s.ctx }
func (*stuck) SetHeader(metadata.MD) error { return nil }
func (s *stuck) SendMsg(m any) error {
	data, err := guardedCodec.Marshal(m)
	if err != nil {
		return err
	}
	close(s.sending)
	<-s.freed
	data.Free()
	return nil
}

// TestStuckStreamsSEC6: what waits for the reader of a stream counts while it waits, and the
// connection of a client that takes nothing is closed.
func TestStuckStreamsSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		memory := budget.New(16 << 20)
		cut := make(chan net.Addr, 1)
		limits := Limits{Memory: memory, Cut: func(a net.Addr) { cut <- a }}
		addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}
		ctx := grpc.NewContextWithServerTransportStream(peer.NewContext(context.Background(), &peer.Peer{Addr: addr}), &arriving{})
		for _, size := range []int{10, 1 << 20} {
			under := &stuck{ctx: ctx, sending: make(chan struct{}), freed: make(chan struct{})}
			s := &guardedStream{ServerStream: under, guard: NewGuard(limits, encodeStatus)}
			sent := make(chan error, 1)
			go func() { sent <- s.SendMsg(&runlogv1.AppendEventsRequest{RequestId: strings.Repeat("x", size)}) }()
			<-under.sending
			if used := memory.Used(); used < sendQueue || size > budget.Uncounted && used < sendQueue+int64(size) {
				t.Errorf("%d bytes are in use for a message of %d that waits", used, size)
			}
			close(under.freed)
			if err := <-sent; err != nil {
				t.Error(err)
			}
			becomes(t, memory, 0)
		}
		d := deadline{after: time.Millisecond}
		d.begin(ctx, &limits)
		if a := <-cut; a.String() != addr.String() {
			t.Errorf("the connection of %v is closed", a)
		}
		if d.end(); !d.fired {
			t.Error("a deadline that has passed may be used again")
		}
	})
}

// TestEndedStreamLetsGoSEC6: the answer of a stream that its client has ended counts no more, even
// if gRPC does not return its buffer, and the client's connection stays.
func TestEndedStreamLetsGoSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		memory := budget.New(16 << 20)
		ctx, cancel := context.WithCancel(grpc.NewContextWithServerTransportStream(context.Background(), &arriving{}))
		s := &guardedStream{ServerStream: &stuck{ctx: ctx}, guard: NewGuard(Limits{Memory: memory}, encodeStatus)}
		a, err := s.guard.answer(ctx, &runlogv1.AppendEventsRequest{RequestId: strings.Repeat("x", 1<<20)})
		if err != nil {
			t.Fatal(err)
		}
		a.(*large).stream = s
		if _, err := guardedCodec.Marshal(a); err != nil || memory.Used() == 0 {
			t.Fatalf("%v, %d bytes in use", err, memory.Used())
		}
		cancel()
		becomes(t, memory, 0)
	})
}

// TestPreparedCountsOnceSEC6: a message for many streams counts once, until the last has sent it.
func TestPreparedCountsOnceSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		memory := budget.New(16 << 20)
		p, err := Prepare(memory, &runlogv1.AppendEventsRequest{RequestId: strings.Repeat("x", 1<<20)})
		if err != nil {
			t.Fatal(err)
		}
		used := memory.Used()
		if used < 1<<20 {
			t.Errorf("%d bytes are in use", used)
		}
		var sent []mem.BufferSlice
		for range 3 {
			data, err := guardedCodec.Marshal(p)
			if err != nil || memory.Used() != used {
				t.Fatalf("%v, %d bytes in use", err, memory.Used())
			}
			sent = append(sent, data)
		}
		p.Free()
		for _, data := range sent {
			if memory.Used() != used {
				t.Errorf("%d bytes are in use while a stream has the message", memory.Used())
			}
			data.Free()
		}
		becomes(t, memory, 0)
		full, err := memory.Acquire(budget.Shared, 8<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Prepare(memory, &runlogv1.AppendEventsRequest{RequestId: strings.Repeat("x", 1<<20)}); err == nil {
			t.Error("a message without room is prepared")
		}
		full.Release()
	})
}

// refusing is a stream whose SendMsg ends before gRPC encodes the message.
type refusing struct {
	grpc.ServerStream
	ctx context.Context
}

func (r refusing) Context() context.Context { return r.ctx }
func (refusing) SendMsg(any) error          { return context.Canceled }

// transportStream is a stream of gRPC's transport for the guard.
type transportStream struct {
	grpc.ServerTransportStream
	incoming
}

// TestUnsentAnswersSEC6: an answer that gRPC has never encoded draws no more from the budget.
func TestUnsentAnswersSEC6(t *testing.T) {
	memory := budget.New(16 << 20)
	ctx := grpc.NewContextWithServerTransportStream(t.Context(), transportStream{})
	s := &guardedStream{ServerStream: refusing{ctx: ctx}, guard: NewGuard(Limits{Memory: memory}, encodeStatus)}
	answer := &runlogv1.ReadEventsResponse{Events: []*runlogv1.EventRecord{{RunId: strings.Repeat("r", 1<<20)}}}
	if a, err := s.guard.answer(ctx, answer); err != nil || memory.Used() < 1<<20 {
		t.Fatalf("%d bytes are in use for a large answer, error %v", memory.Used(), err)
	} else {
		a.(*large).drop()
	}
	if err := s.SendMsg(answer); !errors.Is(err, context.Canceled) || memory.Used() != 0 {
		t.Errorf("%d bytes are in use after SendMsg, error %v", memory.Used(), err)
	}
}
