package server

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/batch"
	"runlog/server/gate"
	"runlog/storage"
)

// streamInFlight bounds the requests of one stream that wait for their answer. The stream is not read
// beyond it, so that HTTP/2's flow control holds the producer back.
const streamInFlight = 1024

type appendStream = grpc.BidiStreamingServer[runlogv1.AppendEventsRequest, runlogv1.AppendStreamResponse]

// AppendStream takes requests as fast as they come and answers in their order (APP-8). Each is stored
// whole or not at all, also when the stream breaks (APP-3). Requests of one stream are applied in order.
//
// A stopping node answers what it has admitted and ends the stream: what is then left without an answer
// was not stored.
func (e *eventService) AppendStream(stream appendStream) error {
	in := intake{waiting: make(chan *streamed, streamInFlight), room: make(chan struct{}, streamInFlight)}
	ended := make(chan error, 1)
	// It ends with the stream, at the latest when this call returns: nothing else ends a Recv.
	go func() {
		ended <- e.receive(stream, &in)
		close(in.waiting)
	}()
	stopping := e.s.stopping.Done()
	for {
		select {
		case r, more := <-in.waiting:
			if !more {
				return statusOf(<-ended)
			}
			if err := stream.Send(e.answer(stream.Context(), r)); err != nil {
				return err
			}
			<-in.room
		case <-stopping:
			// From here on nothing is admitted, and receive ends at its next request.
			in.close()
			stopping = nil
		}
		if stopping == nil && len(in.waiting) == 0 {
			return statusOf(errStopping)
		}
	}
}

// intake takes the requests of a stream until it is closed.
type intake struct {
	waiting chan *streamed // admitted or refused, in order
	room    chan struct{}  // a token for each that has no answer yet

	mu     sync.Mutex
	closed bool
}

// put admits a request, for which the caller has taken room, unless the intake is closed.
func (in *intake) put(admit func() *streamed) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.waiting <- admit()
	}
	return !in.closed
}

func (in *intake) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
}

// streamed is a request of a stream on its way: admitted, or refused with err.
type streamed struct {
	requestID string
	append    storage.Append
	ticket    batch.Ticket
	err       error
}

// receive admits requests until the producer has no more, or the stream or the node ends.
func (e *eventService) receive(stream appendStream, in *intake) error {
	for {
		select {
		case in.room <- struct{}{}:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		req, err := stream.Recv()
		admit := func() *streamed { return e.admit(req) }
		var refusal *gate.Refusal
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &refusal) && refusal.Readable:
			admit = func() *streamed { return &streamed{requestID: refusal.RequestID, err: refusal.Err} }
		case err != nil:
			// What came before is still answered.
			return err
		}
		if !in.put(admit) {
			return errStopping
		}
	}
}

func (e *eventService) admit(req *runlogv1.AppendEventsRequest) *streamed {
	r := &streamed{requestID: req.RequestId}
	if r.append, r.err = e.s.parseAppend(req); r.err != nil {
		return r
	}
	var cmd storage.Command
	if cmd, r.err = storage.EncodeAppend(&r.append); r.err != nil {
		return r
	}
	r.ticket, r.err = e.s.enqueue(cmd)
	return r
}

func (e *eventService) answer(ctx context.Context, r *streamed) *runlogv1.AppendStreamResponse {
	resp := &runlogv1.AppendStreamResponse{RequestId: r.requestID}
	err := r.err
	if err == nil {
		var outcome storage.Outcome
		if outcome, resp.Results, err = e.s.settle(ctx, &r.append, r.ticket); err == nil {
			resp.LastSeq, resp.Position = outcome.LastSeq, formatPosition(outcome.Position)
			return resp
		}
	}
	resp.Status = status.Convert(statusOf(err)).Proto()
	return resp
}

// parseAppend turns a wire message into the request that the inner rooms trust.
func (s *Server) parseAppend(req *runlogv1.AppendEventsRequest) (storage.Append, error) {
	switch {
	case req.RunId == "":
		return storage.Append{}, invalid("runId", "is required")
	case contract.TextFault(req.RequestId) != "":
		return storage.Append{}, invalid("requestId", contract.TextFault(req.RequestId))
	}
	events, err := contract.ValidateAll(req.Events, s.gate(req.RunId))
	return storage.Append{RunID: req.RunId, Events: events, ExpectedLastSeq: req.ExpectedLastSeq}, err
}
