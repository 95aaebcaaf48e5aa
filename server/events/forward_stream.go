package events

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/cluster"
	"runlog/server/rpc"
)

// streamRoute routes the requests of one AppendStream: into this node's log, or on a stream to the
// leader. It uses one route at a time. It changes the route only when all requests of the old one
// have their answer, so that requests are applied in order. One goroutine uses it.
type streamRoute struct {
	s      *Service
	ctx    context.Context // of the producer's stream
	remote *forwardStream  // nil: none
	here   sync.WaitGroup  // admitted by this node and not answered yet
	line   streamLine      // of the requests that this node admits
}

// admit routes a request.
func (r *streamRoute) admit(req *runlogv1.AppendEventsRequest) *streamed {
	if r.s.node.Leading() || rpc.IsForwarded(r.ctx) {
		return r.admitHere(req)
	}
	var admitted *streamed
	err := r.s.node.AtLeader(r.ctx, func(leadership *cluster.Leadership) (err error) {
		if leadership.Link == nil {
			admitted = r.admitHere(req)
			return nil
		}
		r.here.Wait()
		if r.remote == nil || r.remote.leadership != leadership || r.remote.broken() {
			r.end()
			if r.remote, err = dialRemote(r.ctx, leadership); err != nil {
				r.remote = nil
				return fmt.Errorf("%w: %w", raft.ErrNotLeader, err)
			}
		}
		admitted = &streamed{requestID: safeID(req), remote: r.remote.send(req)}
		return nil
	})
	if err != nil {
		r.end()
		return &streamed{requestID: safeID(req), err: err}
	}
	return admitted
}

// admitHere admits a request to this node's log.
func (r *streamRoute) admitHere(req *runlogv1.AppendEventsRequest) *streamed {
	r.end()
	admitted := r.s.admit(r.ctx, req, &r.here, &r.line)
	r.here.Add(1)
	admitted.here = &r.here
	return admitted
}

// safeID returns the request id for an answer, if it is valid text. The request is not validated
// yet.
func safeID(req *runlogv1.AppendEventsRequest) string {
	if contract.TextFault(req.RequestId) != "" {
		return ""
	}
	return req.RequestId
}

// end waits for the answers of the stream to the leader and closes the stream.
func (r *streamRoute) end() {
	if r.remote != nil {
		r.remote.end()
		r.remote = nil
	}
}

// forwardStream is an AppendStream to the leader.
type forwardStream struct {
	leadership *cluster.Leadership
	stream     grpc.BidiStreamingClient[runlogv1.AppendEventsRequest, runlogv1.AppendStreamResponse]
	// sent holds the expected answers, in order. It has room for as many as the producer's stream.
	sent   chan chan<- remoteAnswer
	done   chan struct{} // closed when receive has ended
	cancel context.CancelFunc
}

type remoteAnswer struct {
	response *runlogv1.AppendStreamResponse
	err      error
}

func dialRemote(ctx context.Context, leadership *cluster.Leadership) (*forwardStream, error) {
	ctx, err := rpc.PassOn(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := leadership.Bound(ctx)
	stream, err := runlogv1.NewEventServiceClient(leadership.Link.Conn).AppendStream(ctx)
	if err != nil {
		cancel()
		return nil, rpc.ForwardingError(ctx, false, err)
	}
	// This ends gRPC's own retries, in which Recv waits for a connection and holds a mutex that
	// Send needs.
	_ = stream.Context()
	r := &forwardStream{leadership: leadership, stream: stream, sent: make(chan chan<- remoteAnswer, streamInFlight+1),
		done: make(chan struct{}), cancel: cancel}
	go r.receive()
	return r, nil
}

// send sends a request and returns the channel of its answer.
func (r *forwardStream) send(req *runlogv1.AppendEventsRequest) <-chan remoteAnswer {
	answer := make(chan remoteAnswer, 1)
	r.sent <- answer
	_ = r.stream.Send(req) // receive gets the cause of a failure
	return answer
}

// receive distributes the answers. After the stream has broken, requests without an answer may or
// may not have been stored.
func (r *forwardStream) receive() {
	defer close(r.done)
	var broken error
	for answer := range r.sent {
		if broken == nil {
			var response *runlogv1.AppendStreamResponse
			if response, broken = r.stream.Recv(); broken == nil {
				answer <- remoteAnswer{response: response}
				continue
			}
			r.cancel() // Sending fails from here on.
			if broken = rpc.ForwardingError(r.stream.Context(), true, broken); !errors.Is(broken, raft.ErrNotLeader) {
				broken = &contract.Error{Reason: contract.ReasonOutcomeUnknown,
					Message: "the leader was lost before its answer came; the events may be stored or not"}
			}
		}
		answer <- remoteAnswer{err: broken}
	}
}

// broken reports whether nothing more can be sent.
func (r *forwardStream) broken() bool { return r.stream.Context().Err() != nil }

// end returns when every request has its answer.
func (r *forwardStream) end() {
	_ = r.stream.CloseSend() // never fails
	close(r.sent)
	<-r.done
	r.cancel()
}
