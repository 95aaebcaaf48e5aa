package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server/cluster"
	"runlog/server/peer"
	"runlog/server/rpc/decode"
)

// leaderHeader names the header of a forwarded answer with the leader's address for clients. A
// client may use it to call the leader directly (D8).
const leaderHeader = "runlog-leader"

// passedOn lists the headers that a forwarded call carries: the trace that the call is part of. The
// caller's credentials stay here; a passport has its identity.
var passedOn = []string{"traceparent", "tracestate", "x-request-id"}

// IsForwarded reports whether another member forwarded the call.
func IsForwarded(ctx context.Context) bool {
	_, by := peer.From(ctx)
	return by
}

// answerAtLeader calls the service of the leader: here, or on the node that leads. A call is
// forwarded at most once.
func (c *Chain) answerAtLeader(ctx context.Context, m *Method, req any, next grpc.UnaryHandler) (resp any, err error) {
	leaders := c.opts.Leaders()
	if leaders.Leading() || decode.Refused(ctx) {
		if resp, err = next(ctx, req); !errors.Is(err, raft.ErrNotLeader) {
			return resp, err
		}
	}
	if IsForwarded(ctx) {
		return nil, leaders.NotLeader()
	}
	err = leaders.AtLeader(ctx, func(l *cluster.Leadership) (err error) {
		if l.Link == nil {
			resp, err = next(ctx, req)
		} else {
			resp, err = forward(ctx, l, m, req)
		}
		return err
	})
	return resp, err
}

// AtLeader lets the leader answer a part of another call. here is the local service's method, and
// method the full name under which the leader is called.
func (c *Chain) AtLeader(ctx context.Context, method string, req any, here grpc.UnaryHandler) (any, error) {
	return c.answerAtLeader(ctx, c.opts.Methods[method], req, here)
}

// forward calls the leader over the connection between members. An error wraps raft.ErrNotLeader if
// nothing was stored and another node must be asked.
func forward(ctx context.Context, l *cluster.Leadership, m *Method, req any) (any, error) {
	bound, err := PassOn(ctx)
	if err != nil {
		return nil, err
	}
	done := func() {}
	if !m.toTheEnd {
		bound, done = l.Bound(bound)
	}
	defer done()
	var reached grpcpeer.Peer
	resp := m.output.New().Interface()
	if err := l.Link.Conn.Invoke(bound, m.name, req, resp, grpc.Peer(&reached)); err != nil {
		return nil, ForwardingError(ctx, reached.Addr != nil, err)
	}
	if leader := l.Link.GRPCAddress(); leader != "" && untold(ctx) {
		// Fails only once the answer has begun.
		_ = grpc.SetHeader(ctx, LeaderHeader(leader))
	}
	return resp, nil
}

// LeaderHeader is the header of an answer that another node gives; leader: its address for clients,
// or empty if it is not known.
func LeaderHeader(leader string) metadata.MD {
	if leader == "" {
		return nil
	}
	return metadata.Pairs(leaderHeader, leader)
}

type toldKey struct{}

// InParts returns the context of a call of which the leader answers many parts: the answer names
// the leader once. Clients take a few KiB of headers.
func InParts(ctx context.Context) context.Context {
	return context.WithValue(ctx, toldKey{}, new(atomic.Bool))
}

// untold says whether the answer does not name the leader yet.
func untold(ctx context.Context) bool {
	told, parts := ctx.Value(toldKey{}).(*atomic.Bool)
	return !parts || told.CompareAndSwap(false, true)
}

// PassOn returns the context of a forwarded call. An error wraps raft.ErrNotLeader: this node
// cannot prove to the leader which identity calls.
func PassOn(ctx context.Context) (context.Context, error) {
	in, _ := metadata.FromIncomingContext(ctx)
	var out []string
	identity, err := passport(ctx)
	if err != nil {
		return nil, err
	}
	if identity != "" {
		out = append(out, passportHeader, identity)
	}
	for _, key := range passedOn {
		for _, value := range in.Get(key) {
			out = append(out, key, value)
		}
	}
	if len(out) == 0 {
		return ctx, nil
	}
	return metadata.AppendToOutgoingContext(ctx, out...), nil
}

// ForwardingError converts an error of a forwarded call into the error for its caller. If a call
// was sent and has no answer, its events may have been stored.
func ForwardingError(ctx context.Context, sent bool, err error) error {
	st := status.Convert(err)
	switch {
	case isNotLeader(st):
		return fmt.Errorf("%w: %w", raft.ErrNotLeader, err)
	case reasonIn(st) != "":
		return err
	case !sent:
		return raft.ErrNotLeader
	case ctx.Err() != nil:
		return &contract.Error{Reason: contract.ReasonOutcomeUnknown, DeadlineExceeded: true,
			Message: "the call ended before the leader's answer came; the events may be stored or not"}
	case st.Code() == codes.Unimplemented:
		return upgradeFirst("the leader's build does not know the call: " + st.Message())
	case st.Code() == codes.Unavailable, st.Code() == codes.Canceled, st.Code() == codes.DeadlineExceeded:
		return &contract.Error{Reason: contract.ReasonOutcomeUnknown,
			Message: "the leader was lost before its answer came; the events may be stored or not"}
	default:
		// No service of runlog: gRPC itself could not bring the answer.
		return &contract.Error{Reason: contract.ReasonOutcomeUnknown,
			Message: "the leader's answer did not come (" + st.Message() + "); the events may be stored or not"}
	}
}
