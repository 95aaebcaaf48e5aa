package events

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

const (
	// streamInFlight bounds the tokens of one stream: requests that wait for their answer, or whose
	// answer waits to be read. Beyond it the server stops reading, so HTTP/2 flow control slows the
	// producer down.
	streamInFlight = 1024
	// streamToken is the number of bytes per token. A larger request takes more tokens.
	streamToken = 8 << 10
)

// errStopping is the error with which a stopping node ends streams.
var errStopping = &contract.Error{Reason: contract.ReasonShuttingDown,
	Message: "the node is stopping; requests without an answer were not stored: send them to another node"}

type appendStream = grpc.BidiStreamingServer[runlogv1.AppendEventsRequest, runlogv1.AppendStreamResponse]

// AppendStream accepts requests as fast as they come and answers in their order (APP-8). Each
// request is stored completely or not at all, also when the stream breaks (APP-3). Requests of one
// stream are applied in order.
//
// A stopping node answers the requests that it has admitted and then ends the stream. Requests
// without an answer were not stored.
func (s *Service) AppendStream(stream appendStream) error {
	// A producer learns at once that the stream was not refused, and which node leads.
	if err := stream.SendHeader(rpc.LeaderHeader(s.node.OtherLeader())); err != nil {
		return err
	}
	in := intake{waiting: make(chan *streamed, streamInFlight), room: make(chan struct{}, streamInFlight)}
	route := &streamRoute{s: s, ctx: stream.Context()}
	ended := make(chan error, 1)
	// This goroutine ends with the stream, at the latest when this call returns: nothing else ends
	// a Recv.
	go func() {
		ended <- s.receive(stream, &in, route)
		close(in.waiting)
		route.end()
	}()
	// The server waits for the outcome of requests even if the client does not read their answers,
	// so that their memory is released.
	answers := make(chan *reply, streamInFlight)
	go func() {
		defer close(answers)
		for r := range in.waiting {
			response := s.answer(stream.Context(), r)
			if r.here != nil {
				r.here.Done()
			}
			answers <- &reply{response, r.tokens}
		}
	}()
	stopping := s.opts.Stopping.Done()
	for {
		select {
		case a, more := <-answers:
			if !more {
				return <-ended
			}
			if err := stream.Send(a.response); err != nil {
				return err
			}
			in.release(a.tokens)
		case <-stopping:
			// From here on nothing is admitted. receive ends at its next request.
			in.close()
			stopping = nil
		}
		if stopping == nil && in.unanswered.Load() == 0 {
			return errStopping
		}
	}
}

// intake admits the requests of a stream until it is closed.
type intake struct {
	waiting    chan *streamed // admitted or refused, in order
	room       chan struct{}  // tokens of requests that have no answer yet
	unanswered atomic.Int64
	closed     atomic.Bool
}

// reply is an answer to send.
type reply struct {
	response *runlogv1.AppendStreamResponse
	tokens   int
}

// take acquires one token. A large request needs several.
func (in *intake) take(ctx context.Context) error {
	select {
	case in.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (in *intake) release(tokens int) {
	in.unanswered.Add(-1)
	for range tokens {
		<-in.room
	}
}

// put admits a request unless the intake is closed. The caller has acquired its tokens.
func (in *intake) put(admit func() *streamed) bool {
	// The count rises before the check: after close, a count of zero is final.
	in.unanswered.Add(1)
	if in.closed.Load() {
		in.unanswered.Add(-1)
		return false
	}
	in.waiting <- admit()
	return true
}

// close returns at once, also while a request waits for a leader.
func (in *intake) close() { in.closed.Store(true) }

// streamed is a request of a stream on its way: admitted, or refused with err.
type streamed struct {
	requestID string
	append    storage.Append
	pending   replica.Pending
	appended  *replica.Appended   // its outcome, if it was waited for when it was admitted
	tokens    int                 // of the stream's room
	remote    <-chan remoteAnswer // nil: the request was admitted here
	// of requests without an answer, where the request is one; else nil
	here *sync.WaitGroup
	err  error
}

// receive admits requests until the producer has no more, or the stream or the node ends.
func (s *Service) receive(stream appendStream, in *intake, route *streamRoute) error {
	for {
		if err := in.take(stream.Context()); err != nil {
			return err
		}
		req, err := stream.Recv()
		admit := func() *streamed { return route.admit(req) }
		var refusal *decode.Refusal
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &refusal) && refusal.Readable:
			admit = func() *streamed { return &streamed{requestID: refusal.RequestID, err: refusal.Err} }
		case err != nil:
			// What came before is still answered.
			return err
		}
		tokens := 1
		for ; tokens < min(streamInFlight, proto.Size(req)/streamToken); tokens++ {
			if err := in.take(stream.Context()); err != nil {
				return err
			}
		}
		if !in.put(func() *streamed {
			r := admit()
			r.tokens = tokens
			return r
		}) {
			return errStopping
		}
	}
}

// admit admits a request behind those of earlier, which have no answer yet. A request whose
// attempts the authority assigns may need several tries (IDM-10). It waits for those before it and
// for its outcome, so that the requests of the stream are applied in order.
func (s *Service) admit(ctx context.Context, req *runlogv1.AppendEventsRequest, earlier *sync.WaitGroup, line *streamLine) *streamed {
	r := &streamed{requestID: safeID(req)}
	if r.append, r.err = s.parse(ctx, req); r.err == nil {
		r.err = s.check(ctx, &r.append, earlier)
	}
	switch {
	case r.err != nil: // It says nothing of the run.
		return r
	case replica.LeavesOutAttempts(&r.append):
		earlier.Wait()
		var done replica.Appended
		done, r.err = s.node.Append(ctx, &r.append)
		r.appended = &done
	default:
		r.pending, r.err = s.node.Admit(ctx, &r.append, line.of(ctx, s.node.Tenant(&r.append), earlier))
	}
	r.err = rpc.RefusedAppend(ctx, s.node.Store(), r.append.RunID, r.err)
	return r
}

// check is rpc.CheckAppend. A request may be about a run that an earlier one of the stream makes.
func (s *Service) check(ctx context.Context, a *storage.Append, earlier *sync.WaitGroup) error {
	err := rpc.CheckAppend(ctx, s.node, a)
	if _, unscoped := errors.AsType[*storage.UnscopedError](err); unscoped {
		earlier.Wait()
		err = rpc.CheckAppend(ctx, s.node, a)
	}
	rpc.RecordDeniedPart(ctx, runlogv1.EventService_AppendStream_FullMethodName, err)
	return err
}

// streamLine is the line of the batcher that keeps the requests of a stream in order. A stream is
// in the line of its tenant; once it has appended for several, in that of its caller.
type streamLine struct {
	name  string
	mixed bool
}

// of returns the line for a request. It changes the line only when the requests in the old one have
// their answer.
func (l *streamLine) of(ctx context.Context, tenant string, earlier *sync.WaitGroup) string {
	if l.mixed || tenant == "" || tenant == l.name {
		return l.name
	}
	earlier.Wait()
	if l.name == "" {
		l.name = tenant
	} else {
		l.name, l.mixed = callerLine+auth.From(ctx).Name, true
	}
	return l.name
}

// callerLine begins the names of lines that no tenant has.
const callerLine = "\x00"

func (s *Service) answer(ctx context.Context, r *streamed) *runlogv1.AppendStreamResponse {
	resp := &runlogv1.AppendStreamResponse{RequestId: r.requestID}
	err := r.err
	if r.remote != nil {
		answer := <-r.remote
		if answer.err == nil {
			return answer.response
		}
		err = answer.err
	} else if err == nil {
		done := r.appended
		if done == nil {
			var waited replica.Appended
			waited, err = r.pending.Wait(ctx)
			done = &waited
		}
		if err == nil {
			resp.Results = wire.Results(r.append.Events, &done.Outcome, done.Diverged, done.Keys)
			resp.LastSeq, resp.Position = done.LastSeq, rpc.FormatPosition(s.node.Store().Incarnation(), done.Position)
			return resp
		}
		err = rpc.RefusedAppend(ctx, s.node.Store(), r.append.RunID, err)
	}
	resp.Status = status.Convert(rpc.Status(err)).Proto()
	return resp
}
