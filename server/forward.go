package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server/cluster"
	"runlog/server/peer"
)

const (
	// leaderHeader of an answer names the address at which clients reach the leader, where another
	// node has answered: they may go straight (D8).
	leaderHeader = "runlog-leader"
	// againAfter is when a leader is asked again that has refused, without another one.
	againAfter = 50 * time.Millisecond
)

// passedOn are the headers that go with a call to the leader: who calls, and what the call is part
// of.
var passedOn = []string{"authorization", "traceparent", "tracestate", "x-request-id"}

// isForwarded tells whether another node passed the call on.
func isForwarded(ctx context.Context) bool {
	_, by := peer.From(ctx)
	return by
}

// leaderRoute is where a call is answered that only the leader can answer: here, or by the node
// that leads.
type leaderRoute[Resp any] struct {
	// outlives says that the answer comes when another leads: the call itself makes it so.
	outlives bool
	here     func() (Resp, error)
	there    func(context.Context, *grpc.ClientConn, ...grpc.CallOption) (Resp, error)
}

// atLeader answers a call by its route. While nobody leads it waits as leaderWait says. An
// answer from elsewhere is a gRPC status already.
func atLeader[Resp any](ctx context.Context, s *Server, r leaderRoute[Resp]) (resp Resp, err error) {
	if s.node.Leading() {
		if resp, err = r.here(); !errors.Is(err, raft.ErrNotLeader) {
			return resp, err
		}
	}
	if isForwarded(ctx) {
		return resp, s.notLeader()
	}
	waiting, cancel := s.leaderWait(ctx)
	defer cancel()
	var tried *cluster.Leadership
	for {
		if s.cluster.AwaitLeader(waiting, tried) != nil {
			return resp, cmpErr(err, s.notLeader())
		}
		if tried, err = s.cluster.Leader(); err != nil {
			continue
		}
		if tried.Link == nil {
			resp, err = r.here()
		} else {
			resp, err = forwarded(ctx, s, tried, r)
		}
		if err == nil || !isNotLeader(err) {
			return resp, err
		}
		tried = s.retriable(waiting, tried)
	}
}

func cmpErr(err, otherwise error) error {
	if err != nil && !errors.Is(err, cluster.ErrNoLeader) && !errors.Is(err, raft.ErrNotLeader) {
		return err
	}
	return otherwise
}

// retriable waits for another leader than one that has refused, for a while: after that the same
// may be asked again.
func (s *Server) retriable(ctx context.Context, r *cluster.Leadership) *cluster.Leadership {
	ctx, cancel := context.WithTimeout(ctx, againAfter)
	defer cancel()
	if s.cluster.AwaitLeader(ctx, r) == nil {
		return r
	}
	return nil
}

// forwarded calls the leader.
func forwarded[Resp any](ctx context.Context, s *Server, leadership *cluster.Leadership, r leaderRoute[Resp]) (resp Resp, err error) {
	bound, done := passOn(ctx), func() {}
	if !r.outlives {
		bound, done = leadership.Bound(bound)
	}
	defer done()
	var reached grpcpeer.Peer
	if resp, err = r.there(bound, leadership.Link.Conn, grpc.Peer(&reached)); err != nil {
		return resp, s.failed(ctx, reached.Addr != nil, err)
	}
	if leader := leadership.Link.GRPCAddress(); leader != "" {
		// fails only where the answer has begun
		_ = grpc.SetHeader(ctx, metadata.Pairs(leaderHeader, leader))
	}
	return resp, nil
}

// passOn is the context of a call to the leader.
func passOn(ctx context.Context) context.Context {
	in, _ := metadata.FromIncomingContext(ctx)
	var out []string
	for _, key := range passedOn {
		for _, value := range in.Get(key) {
			out = append(out, key, value)
		}
	}
	if len(out) == 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, out...)
}

// failed is what a call is told whose answer from the leader is an error. A call that was on its
// way and has no answer may have been stored.
func (s *Server) failed(ctx context.Context, sent bool, err error) error {
	st := status.Convert(err)
	if reasonIn(st) != "" {
		return err
	}
	switch {
	case !sent:
		return raft.ErrNotLeader
	case ctx.Err() != nil:
		return &contract.Error{Reason: contract.ReasonOutcomeUnknown, DeadlineExceeded: true,
			Message: "the call ended before the leader's answer came; the events may be stored or not"}
	case st.Code() == codes.Unimplemented:
		return err // the leader's build does not know the call
	case st.Code() == codes.Unavailable, st.Code() == codes.Canceled, st.Code() == codes.DeadlineExceeded:
		return &contract.Error{Reason: contract.ReasonOutcomeUnknown,
			Message: "the leader was lost before its answer came; the events may be stored or not"}
	default:
		// No service of ours: gRPC itself could not bring the answer.
		return &contract.Error{Reason: contract.ReasonOutcomeUnknown,
			Message: "the leader's answer did not come (" + st.Message() + "); the events may be stored or not"}
	}
}

// reasonIn returns the reason in a status; empty: it has none, and does not come from a service of
// runlog.
func reasonIn(st *status.Status) contract.Reason {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == errorDomain {
			return contract.Reason(info.Reason)
		}
	}
	return ""
}

// isNotLeader tells whether a call was refused, and nothing stored, because another node has to be
// asked.
func isNotLeader(err error) bool {
	if errors.Is(err, raft.ErrNotLeader) {
		return true
	}
	switch reasonIn(status.Convert(err)) {
	case contract.ReasonNotLeader, contract.ReasonNoLeader, contract.ReasonShuttingDown:
		return true
	default:
		return false
	}
}

// notLeader is what a call is told that only the leader can answer.
func (s *Server) notLeader() error {
	address := s.cluster.LeaderAddress()
	if address == "" || address == s.addresses.GRPC {
		return &contract.Error{Reason: contract.ReasonNoLeader,
			Message: "the cluster has no leader now, because nodes are down or one is being elected; nothing was stored"}
	}
	return &contract.Error{Reason: contract.ReasonNotLeader, Message: fmt.Sprintf("the leader is at %s; nothing was stored", address),
		Metadata: map[string]string{"leader": address}}
}
