package load

import (
	"context"
	"errors"
	"io"

	"runlog/bench/target"

	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// Pipeline drives one stream with as many requests in flight as it has slots, each with a source of
// its own.
type Pipeline struct {
	Open  func(ctx context.Context) (target.Stream, error)
	Slots []Source
}

// flight is a request on its way.
type flight struct {
	at   call
	slot Source
}

// Drive is the pipeline's lane. A broken stream fails its requests and is opened again.
func (p *Pipeline) Drive(ctx context.Context, l *Loop) {
	for p.once(ctx, l) {
	}
}

// once drives one stream from its opening to its end. It returns false at the end of the loop.
func (p *Pipeline) once(ctx context.Context, l *Loop) (more bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := p.Open(ctx)
	if err != nil {
		at, ok := l.begin(ctx)
		if ok {
			l.end(ctx, at, 0, err)
		}
		return ok
	}
	free := make(chan Source, len(p.Slots))
	for _, s := range p.Slots {
		free <- s
	}
	sent := make(chan flight, len(p.Slots))
	broken, received := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(received)
		p.receive(ctx, l, stream, sent, free, broken)
	}()
	more = p.send(ctx, l, stream, sent, free, broken)
	close(sent)
	<-received
	return more
}

// send returns true when the stream broke, and false when the loop is over.
func (p *Pipeline) send(ctx context.Context, l *Loop, stream target.Stream, sent chan<- flight, free <-chan Source, broken <-chan struct{}) bool {
	for {
		var slot Source
		select {
		case <-broken:
			return true
		case slot = <-free:
		}
		at, ok := l.begin(ctx)
		if !ok {
			_ = stream.CloseSend() // sent requests are still answered
			return false
		}
		// Recv reports the reason of a failure.
		_ = stream.Send(slot.Next())
		sent <- flight{at, slot}
	}
}

// receive settles the sent requests, in order.
func (p *Pipeline) receive(ctx context.Context, l *Loop, stream target.Stream, sent <-chan flight, free chan<- Source, broken chan<- struct{}) {
	var failure error
	for f := range sent {
		res, err := receiveOne(stream, failure)
		if err != nil && failure == nil {
			failure = err
			close(broken)
		}
		if err == nil && res.GetStatus().GetCode() != 0 {
			err = status.ErrorProto(res.GetStatus())
		}
		n, err := f.slot.Settle(res.GetResults(), err)
		l.end(ctx, f.at, n, err)
		free <- f.slot
	}
}

func receiveOne(stream target.Stream, failure error) (*runlogv1.AppendStreamResponse, error) {
	if failure != nil {
		return nil, failure
	}
	res, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		err = target.WrongAnswer("STREAM_ENDED", "the stream ended before every request was answered")
	}
	return res, err
}
