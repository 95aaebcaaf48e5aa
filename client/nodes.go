package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"runlog/client/address"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// leaderHeader of an answer has the leader's address, if another node has answered.
	leaderHeader = "runlog-leader"
	// leaderFact is the same in the metadata of an error.
	leaderFact = "leader"
	// connectTimeout bounds one try to connect: a host that is down sends no refusal.
	connectTimeout = 5 * time.Second
	// A silent connection with calls in flight is pinged after keepaliveTime, and is lost without
	// an answer within keepaliveTimeout: a frozen or unreachable host closes no connection. A node
	// accepts pings every 10 s at most.
	keepaliveTime    = 15 * time.Second
	keepaliveTimeout = 5 * time.Second
	// maxLearned bounds the connections to leaders that are not on the caller's list. A cluster has
	// fewer nodes.
	maxLearned = 8
)

// nodes are the connections to a cluster: one for each address on the caller's list, and those to
// leaders that other nodes named. It chooses the node of each try; the retry loop above decides
// whether there is another try.
//
//	reads, streams ──► listed[at]        at moves on when a try ends UNAVAILABLE
//	appends ──► leader, once its connection stands; until then, and after it failed, listed[at]
type nodes struct {
	opts    Options
	dial    []grpc.DialOption
	listed  []*node
	closing sync.WaitGroup // of connections that made room

	mu struct {
		sync.Mutex
		at      int
		leader  *node   // nil: unknown
		learned []*node // the newest last
		closed  bool
	}
}

var _ grpc.ClientConnInterface = (*nodes)(nil)

// node is one address and its connection, which is made at the first use.
type node struct {
	address string
	conn    *grpc.ClientConn
	calls   int // under way to a learned node; guarded by nodes.mu
}

// newNodes prepares the connections to a list of addresses with commas between them.
func newNodes(target string, opts Options, dial []grpc.DialOption) (*nodes, error) {
	n := &nodes{opts: opts, dial: append([]grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: opts.MinBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: opts.MaxBackoff},
		MinConnectTimeout: connectTimeout,
	}), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout})}, dial...)}
	addresses, err := address.List(target)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	for _, address := range addresses {
		l, err := n.open(address)
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.listed = append(n.listed, l)
	}
	return n, nil
}

func (n *nodes) open(address string) (*node, error) {
	if address == "" {
		return nil, errors.New("client: server address is empty")
	}
	transport, err := n.opts.Transport(address)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(address, append(transport, n.dial...)...)
	if err != nil {
		return nil, fmt.Errorf("client: server address %q: %w", address, err)
	}
	return &node{address: address, conn: conn}, nil
}

// Invoke makes one try of a unary call.
func (n *nodes) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if _, none := n.opts.Observer.(unobserved); none {
		return n.invoke(ctx, method, args, reply, opts...)
	}
	began := time.Now()
	err := n.invoke(ctx, method, args, reply, opts...)
	outcome := "ok"
	if err != nil {
		outcome = newError(ctx, err).Name()
	}
	n.opts.Observer.Called(method, outcome, time.Since(began))
	return err
}

func (n *nodes) invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	appends := method == runlogv1.EventService_AppendEvents_FullMethodName
	to, err := n.pick(appends)
	if err != nil {
		return err
	}
	defer n.release(to)
	if !appends {
		err := to.conn.Invoke(ctx, method, args, reply, opts...)
		n.judge(ctx, to, err)
		return err
	}
	var header metadata.MD
	err = to.conn.Invoke(ctx, method, args, reply, append(opts, grpc.Header(&header))...)
	if err != nil {
		n.judge(ctx, to, err)
		return err
	}
	n.learnFrom(header)
	return nil
}

// learnFrom learns the leader from the header of an answer.
func (n *nodes) learnFrom(header metadata.MD) {
	if leader := header.Get(leaderHeader); len(leader) > 0 {
		n.learn(leader[0])
	}
}

// NewStream opens a stream, which stays on its node until it ends.
func (n *nodes) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := n.openStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, err // not a nil *nodeStream
	}
	return stream, nil
}

// openStream is NewStream.
func (n *nodes) openStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (*nodeStream, error) {
	appends := method == runlogv1.EventService_AppendStream_FullMethodName
	to, err := n.pick(appends)
	if err != nil {
		return nil, err
	}
	stream, err := to.conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		n.release(to)
		n.judge(ctx, to, err)
		return nil, err
	}
	// This ends gRPC's own retries, in which RecvMsg waits for a connection with a mutex held. A
	// lane sends at the same time, and repeats by itself.
	_ = stream.Context()
	s := &nodeStream{ClientStream: stream, nodes: n, node: to, holds: appends}
	if !appends {
		n.release(to) // the connections of the list are never closed for room
	}
	return s, nil
}

// nodeStream notices how a stream ends.
type nodeStream struct {
	grpc.ClientStream
	nodes *nodes
	node  *node
	holds bool // it counts as a call of its node
}

// RecvMsg is that of the stream.
func (s *nodeStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		return nil
	}
	if s.holds {
		s.holds = false
		s.nodes.release(s.node)
	}
	if !errors.Is(err, io.EOF) {
		s.nodes.judge(s.Context(), s.node, err)
	}
	return err
}

// learn learns the leader from the header, which must have come.
func (s *nodeStream) learn() {
	if header, err := s.Header(); err == nil {
		s.nodes.learnFrom(header)
	}
}

// mayHaveTakenEffect reports whether messages without an answer may have, after the stream has
// ended with e. A node sends the header before it takes the first message: without one, it has
// refused the stream.
func (s *nodeStream) mayHaveTakenEffect(e *Error) bool {
	if e.Reason == ReasonShuttingDown {
		return false // the node has answered what it took
	}
	header, err := s.Header()
	return err == nil && len(header) > 0 || e.unknown()
}

// pick returns the node of the next try. The caller must call release.
func (n *nodes) pick(appends bool) (*node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return nil, closedStatus{}
	}
	to := n.chooseLocked(appends)
	to.calls++
	return to, nil
}

// chooseLocked returns the node for a call.
func (n *nodes) chooseLocked(appends bool) *node {
	if l := n.mu.leader; appends && l != nil {
		switch l.conn.GetState() {
		case connectivity.Ready:
			return l
		case connectivity.Idle:
			l.conn.Connect()
		}
	}
	return n.listed[n.mu.at]
}

// suits reports whether a stream of appends would be opened on this node again.
func (n *nodes) suits(node *node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.chooseLocked(true) == node
}

// closedStatus is the error of calls on a closed client, with a gRPC code.
type closedStatus struct{}

func (closedStatus) Error() string { return "the client is closed" }

func (closedStatus) Unwrap() error { return ErrClosed }

// GRPCStatus returns the code.
func (s closedStatus) GRPCStatus() *status.Status { return status.New(codes.Canceled, s.Error()) }

func (n *nodes) release(to *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	to.calls--
}

// judge handles a failed try: if the node may be at fault, the next try uses another one.
func (n *nodes) judge(ctx context.Context, from *node, err error) {
	if err == nil {
		return
	}
	e := newError(ctx, err)
	unanswered := e.Code == codes.DeadlineExceeded && e.Reason == "" || errors.Is(context.Cause(ctx), errSilent)
	if e.Code != codes.Unavailable && !unanswered {
		return
	}
	n.mu.Lock()
	if n.mu.leader == from {
		n.mu.leader = nil
	}
	if n.listed[n.mu.at] == from {
		n.mu.at = (n.mu.at + 1) % len(n.listed)
	}
	n.mu.Unlock()
	if leader := e.Metadata[leaderFact]; leader != "" {
		n.learn(leader)
	}
}

// learn records the leader and starts to connect to it, without waiting: the leader may be
// unreachable for a client that reaches other nodes.
func (n *nodes) learn(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	is := func(l *node) bool { return l.address == address }
	switch known := slices.Concat(n.listed, n.mu.learned); {
	case n.mu.closed:
		return
	case slices.ContainsFunc(known, is):
		n.mu.leader = known[slices.IndexFunc(known, is)]
	default:
		if !n.makeRoomLocked() {
			return
		}
		l, err := n.open(address)
		if err != nil {
			return // another node's view of the leader does not matter here
		}
		n.mu.learned = append(n.mu.learned, l)
		n.mu.leader = l
	}
	if n.mu.leader.conn.GetState() == connectivity.Idle {
		n.mu.leader.conn.Connect()
	}
}

// makeRoomLocked closes the connection to the oldest leader without calls in flight, at the limit
// of connections.
func (n *nodes) makeRoomLocked() bool {
	if len(n.mu.learned) < maxLearned {
		return true
	}
	oldest := slices.IndexFunc(n.mu.learned, func(l *node) bool { return l.calls == 0 })
	if oldest < 0 {
		return false
	}
	gone := n.mu.learned[oldest]
	if n.mu.leader == gone {
		n.mu.leader = nil
	}
	n.closing.Go(func() { _ = gone.conn.Close() }) // not under mu: gRPC may wait for the connection
	n.mu.learned = slices.Delete(n.mu.learned, oldest, oldest+1)
	return true
}

// close ends all connections and every call on them.
func (n *nodes) close() error {
	n.mu.Lock()
	was := n.mu.closed
	n.mu.closed = true
	all := slices.Concat(n.listed, n.mu.learned)
	n.mu.Unlock()
	if was {
		return nil
	}
	var failed []error
	for _, l := range all {
		failed = append(failed, l.conn.Close())
	}
	n.closing.Wait()
	return errors.Join(failed...)
}
