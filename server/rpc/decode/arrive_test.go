package decode

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
	"runlog/testbed/bubble"
)

// arriving is the transport stream of a call whose client sends some bytes, and then its end or
// nothing more.
type arriving struct {
	grpc.ServerTransportStream
	method string
	bytes  []byte
	stall  chan struct{} // nil: the end follows the bytes
}

func (*arriving) RecvCompress() string { return "" }
func (s *arriving) Method() string     { return s.method }

func (s *arriving) ReadMessageHeader(header []byte) error {
	data, err := s.Read(len(header))
	if err == nil {
		copy(header, data.Materialize())
	}
	return err
}

func (s *arriving) Read(n int) (mem.BufferSlice, error) {
	if len(s.bytes) < n {
		if s.stall != nil {
			<-s.stall
		}
		return nil, io.EOF
	}
	out := s.bytes[:n]
	s.bytes = s.bytes[n:]
	return mem.BufferSlice{mem.SliceBuffer(out)}, nil
}

// largeAppend is an append of so many bytes of payload, as gRPC sends it.
func largeAppend(t *testing.T, size int) []byte {
	t.Helper()
	text, err := proto.Marshal(&runlogv1.AppendEventsRequest{RunId: "r", RequestId: strings.Repeat("x", size)})
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// receiveFrom receives the message of a stream into a frame.
func receiveFrom(t *testing.T, limits Limits, s *arriving) (*frame, error) {
	t.Helper()
	s.method = runlogv1.EventService_AppendEvents_FullMethodName
	f := NewGuard(limits, encodeStatus).frame(t.Context(), nil)
	f.msg = &runlogv1.AppendEventsRequest{}
	err := f.receive(grpc.NewContextWithServerTransportStream(t.Context(), s), true, func(any) error {
		t.Error("gRPC reads the message by itself")
		return nil
	})
	return &f, err
}

// TestMessagesCountAsTheyArriveSEC6: a large message draws from the budget while it arrives and
// while its call has it. One that does not fit is refused as OVERLOADED, one that does not come as
// REQUEST_TIMEOUT. In the end nothing is in use.
func TestMessagesCountAsTheyArriveSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		memory := budget.New(16 << 20)
		limits := Limits{Bytes: 8 << 20, Memory: memory, BodyTimeout: 50 * time.Millisecond}
		empty := func(when string) {
			t.Helper()
			bubble.Until(t, when+": no bytes are in use", func() bool { return memory.Used() == 0 })
		}
		for _, size := range []int{100, budget.Uncounted + 100, 3 << 20} {
			f, err := receiveFrom(t, limits, &arriving{bytes: largeAppend(t, size)})
			if err != nil || f.fault != nil || len(f.msg.(*runlogv1.AppendEventsRequest).RequestId) != size {
				t.Fatalf("%d bytes: %v, fault %v", size, err, f.fault)
			}
			if used := memory.Used(); (used >= 2*int64(size)) != (size > budget.Uncounted) {
				t.Errorf("%d bytes are in use for a request of %d", used, size)
			}
			f.grant.Release()
		}
		empty("after whole messages")

		stall := make(chan struct{})
		f, err := receiveFrom(t, limits, &arriving{bytes: largeAppend(t, 3<<20)[:1<<20], stall: stall})
		if err != nil || f.fault == nil || f.fault.Reason != contract.ReasonRequestTimeout {
			t.Errorf("a message that does not come: %v, fault %v", err, f.fault)
		}
		if memory.Used() < 1<<20 {
			t.Errorf("%d bytes are in use for 1 MiB that came", memory.Used())
		}
		close(stall) // As the end of the call does.
		empty("after a message that did not come")

		other, err := memory.Acquire(budget.Shared, 7<<20)
		if err != nil {
			t.Fatal(err)
		}
		if f, err = receiveFrom(t, limits, &arriving{bytes: largeAppend(t, 3<<20)}); err != nil || f.fault == nil || f.fault.Reason != contract.ReasonOverloaded {
			t.Errorf("a message that does not fit: %v, fault %v", err, f.fault)
		}
		f.grant.Release()
		if f, err = receiveFrom(t, limits, &arriving{bytes: largeAppend(t, 100<<10)}); err != nil || f.fault != nil {
			t.Errorf("a small append, when everything but what is kept is in use: %v, fault %v", err, f.fault)
		}
		f.grant.Release()
		other.Release()
		if f, err = receiveFrom(t, limits, &arriving{bytes: largeAppend(t, 3<<20)[:2<<20]}); err == nil {
			t.Error("half a message is taken for one")
		}
		f.grant.Release()
		empty("in the end")
	})
}

// TestUnreadAnswersSEC6: an answer draws from the budget until gRPC has sent it. If its reader does
// not take it in time, its connection is closed. One that does not fit is refused as OVERLOADED.
func TestUnreadAnswersSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		memory := budget.New(4 << 20)
		cut := make(chan net.Addr, 1)
		addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}
		limits := Limits{Bytes: 1 << 20, Memory: memory, Cut: func(a net.Addr) { cut <- a }, ReadTimeout: time.Hour}
		ctx := grpc.NewContextWithServerTransportStream(peer.NewContext(context.Background(), &peer.Peer{Addr: addr}), &arriving{})
		answer := &runlogv1.AppendEventsRequest{RequestId: strings.Repeat("x", 1<<20+1<<19)}
		send := func() (mem.BufferSlice, error) {
			a, err := NewGuard(limits, encodeStatus).answer(ctx, answer)
			if err != nil {
				return nil, err
			}
			return guardedCodec.Marshal(a)
		}
		first, err := send()
		if err != nil || first.Len() != proto.Size(answer) || memory.Used() != int64(first.Len()) {
			t.Fatalf("%v, %d bytes in use", err, memory.Used())
		}
		if _, err := send(); err == nil || !strings.Contains(err.Error(), "memory") {
			t.Errorf("a second answer: %v", err)
		}
		first.Free()
		if memory.Used() != 0 {
			t.Errorf("%d bytes of an answer that was sent are in use", memory.Used())
		}
		limits.ReadTimeout = time.Millisecond
		if _, err := send(); err != nil {
			t.Fatal(err)
		}
		if a := <-cut; a.String() != addr.String() {
			t.Errorf("the connection of %v is closed", a)
		}
		bubble.Until(t, "no bytes of an answer that nobody reads are in use", func() bool { return memory.Used() == 0 })
	})
}
