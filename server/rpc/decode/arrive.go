package decode

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/budget"
)

// piece is how many bytes of a message are drawn from the budget at a time, before they are read.
// HTTP/2 flow control lets a client send a piece more than what was read.
const piece = 256 << 10

// incoming is what a call's stream of the gRPC transport offers. gRPC's own RecvMsg reads a message
// of any size into memory before anything of this node sees it.
type incoming interface {
	RecvCompress() string
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// appends are the methods whose small requests draw from what is kept for appends.
var appends = map[string]bool{
	runlogv1.EventService_AppendEvents_FullMethodName: true,
	runlogv1.EventService_BatchAppend_FullMethodName:  true,
	runlogv1.EventService_AppendStream_FullMethodName: true,
}

// receive reads the next message of a call. single: the call has no other one. receive is gRPC's
// function. Without a connection, or with compression, which gRPC refuses, it does all.
func (f *frame) receive(ctx context.Context, single bool, receive func(any) error) error {
	s := grpc.ServerTransportStreamFromContext(ctx)
	in, ok := s.(incoming)
	if !ok || f.limits.Memory == nil || in.RecvCompress() != "" {
		return receive(f)
	}
	size, err := f.header(in)
	if errors.Is(err, io.EOF) && single {
		return status.Error(codes.Internal, "the call has no request message")
	}
	if err != nil {
		return err
	}
	if size <= budget.Uncounted {
		data, err := whole(in, size, single)
		if err != nil {
			return err
		}
		defer data.Free()
		return guardedCodec.Unmarshal(data, f)
	}
	return f.receiveLarge(in, size, appends[s.Method()], single)
}

// header returns the size of the next message, with the errors of gRPC.
func (f *frame) header(in incoming) (size int, err error) {
	var header [5]byte
	if err := in.ReadMessageHeader(header[:]); err != nil {
		return 0, received(err)
	}
	if header[0] != 0 {
		return 0, status.Error(codes.Internal, "grpc: compressed flag set with identity or empty encoding")
	}
	length := binary.BigEndian.Uint32(header[1:])
	if most := f.limits.Transport(); int64(length) > int64(most) {
		return 0, status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", length, most)
	}
	return int(length), nil
}

// received is the error of a read as gRPC reports it.
func received(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return status.Error(codes.Internal, err.Error())
	case errors.Is(err, io.EOF):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// whole reads bytes of a message; if they are the end of its call's only one, also the end.
func whole(in incoming, size int, single bool) (mem.BufferSlice, error) {
	data, err := in.Read(size)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, received(err)
	}
	if !single {
		return data, nil
	}
	var more [5]byte
	if err = in.ReadMessageHeader(more[:]); errors.Is(err, io.EOF) {
		return data, nil
	}
	data.Free()
	if err == nil {
		return nil, status.Error(codes.Internal, "the call has more than one request message")
	}
	return nil, received(err)
}

// arrived is a message that has been read, and its part of the budget.
type arrived struct {
	data  mem.BufferSlice
	grant budget.Grant
	err   error
}

// receiveLarge reads a message piece by piece. The client has BodyTimeout to send it.
func (f *frame) receiveLarge(in incoming, size int, isAppend, single bool) error {
	class := budget.Shared
	if isAppend {
		class = budget.OfAppend(int64(size))
	}
	done, gone := make(chan arrived), make(chan struct{})
	defer close(gone)
	// This goroutine ends with the call, at the latest: nothing else ends a Read.
	go func() {
		a := f.limits.arrive(in, size, class, single)
		select {
		case done <- a:
		case <-gone:
			a.data.Free()
			a.grant.Release()
		}
	}()
	patience := time.NewTimer(f.limits.bodyTimeout())
	defer patience.Stop()
	var a arrived
	select {
	case a = <-done:
	case <-patience.C:
		a.err = &contract.Error{Reason: contract.ReasonRequestTimeout,
			Message: fmt.Sprintf("the request did not arrive within %v; nothing was stored", f.limits.bodyTimeout())}
	}
	defer a.data.Free()
	if a.err == nil {
		// Both the decoded form and the encoded one are there.
		a.err = a.grant.Move(f.limits.Memory, class, 2*int64(size))
	}
	f.grant = a.grant
	if fault, ok := errors.AsType[*contract.Error](a.err); ok {
		f.fault = fault
		return nil
	}
	if a.err != nil {
		return a.err
	}
	return guardedCodec.Unmarshal(a.data, f)
}

// arrive draws each piece before it reads it.
func (l Limits) arrive(in incoming, size int, class budget.Class, single bool) (a arrived) {
	if class == budget.Append {
		class = budget.Arriving
	}
	if a.grant, a.err = l.Memory.Acquire(class, 0); a.err != nil {
		return a
	}
	for left := size; left > 0 && a.err == nil; {
		n := min(left, piece)
		if a.err = a.grant.Grow(int64(n)); a.err != nil {
			break
		}
		left -= n
		var data mem.BufferSlice
		data, a.err = whole(in, n, single && left == 0)
		a.data = append(a.data, data...)
	}
	return a
}
