package bench

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// pipeline drives one stream with as many requests on their way as it has slots, each with a source
// of its own.
type pipeline struct {
	open  func(ctx context.Context) (Stream, error)
	slots []source
}

// flight is a request on its way.
type flight struct {
	at   call
	slot source
}

// drive is the pipeline's lane. A stream that breaks fails the requests on it and is opened anew.
func (p *pipeline) drive(ctx context.Context, l *loop) {
	for p.once(ctx, l) {
	}
}

// once goes through the life of one stream. It returns false when the loop is over.
func (p *pipeline) once(ctx context.Context, l *loop) (more bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := p.open(ctx)
	if err != nil {
		at, ok := l.begin(ctx)
		if ok {
			l.end(ctx, at, 0, err)
		}
		return ok
	}
	free := make(chan source, len(p.slots))
	for _, s := range p.slots {
		free <- s
	}
	sent := make(chan flight, len(p.slots))
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
func (p *pipeline) send(ctx context.Context, l *loop, stream Stream, sent chan<- flight, free <-chan source, broken <-chan struct{}) bool {
	for {
		var slot source
		select {
		case <-broken:
			return true
		case slot = <-free:
		}
		at, ok := l.begin(ctx)
		if !ok {
			_ = stream.CloseSend() // what was sent is still answered
			return false
		}
		// Why it failed is for Recv to say.
		_ = stream.Send(slot.next())
		sent <- flight{at, slot}
	}
}

// receive settles what was sent, in order, until there is no more.
func (p *pipeline) receive(ctx context.Context, l *loop, stream Stream, sent <-chan flight, free chan<- source, broken chan<- struct{}) {
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
		n, err := f.slot.settle(res.GetResults(), err)
		l.end(ctx, f.at, n, err)
		free <- f.slot
	}
}

func receiveOne(stream Stream, failure error) (*runlogv1.AppendStreamResponse, error) {
	if failure != nil {
		return nil, failure
	}
	res, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		err = wrongAnswer("STREAM_ENDED", "the stream ended before every request was answered")
	}
	return res, err
}
