package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// opener opens a server stream.
type opener[Res any] func(context.Context) (grpc.ServerStreamingClient[Res], error)

// bind turns a generated streaming call and its request into an opener.
func bind[Req, Res any](rpc func(context.Context, Req, ...grpc.CallOption) (grpc.ServerStreamingClient[Res], error), req Req) opener[Res] {
	return func(ctx context.Context) (grpc.ServerStreamingClient[Res], error) { return rpc(ctx, req) }
}

var errSilent = errors.New("client: stream is silent")

// receive opens a stream and passes its messages to take until take returns false, the server ends
// the stream (nil), or it fails. A stream without a message for silence (0: unlimited) counts as
// UNAVAILABLE: a broken network path closes no connection. The time spent in take does not count.
func receive[Res any](ctx context.Context, silence time.Duration, open opener[Res], take func(*Res) bool) *Error {
	streamCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if silence == 0 {
		silence = math.MaxInt64
	}
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()

	stream, err := open(streamCtx)
	for err == nil {
		var message *Res
		message, err = stream.Recv()
		if err != nil {
			break
		}
		watchdog.Stop()
		if !take(message) {
			return nil
		}
		watchdog.Reset(silence)
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case ctx.Err() == nil && errors.Is(context.Cause(streamCtx), errSilent):
		return &Error{
			Code:    codes.Unavailable,
			Message: fmt.Sprintf("the server sent nothing for %v", silence),
			causes:  []error{errSilent},
		}
	default:
		return newError(ctx, err)
	}
}
