package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"runlog/proto/contract"
	"runlog/raft"
	"runlog/server/auth"
	"runlog/server/limits"
	"runlog/server/peer"
)

const (
	// passportHeader has the identity of the caller of a forwarded call.
	passportHeader = "runlog-passport-bin"
	// CheckStreamEvery is how often a stream's right is checked again (SEC-5).
	CheckStreamEvery = 15 * time.Second
)

// Access is what a chain needs to find the identity of a caller.
type Access struct {
	*auth.Authenticator
	Passports auth.Passports
	// Open: callers without credentials have every right, and members need no passport for them.
	Open bool
	// Node is this node's Raft ID.
	Node string
	// CheckEvery is how often a stream's right is checked again.
	CheckEvery time.Duration
	// Log records administrative and refused calls (SEC-7); nil: nothing is recorded.
	Log AccessLog
	// Limits holds tenants to what they may use.
	Limits *limits.Limiter
}

type accessKey struct{}

// identify returns the context of a call with the identity of its caller.
func (c *Chain) identify(ctx context.Context) (context.Context, error) {
	a := c.opts.Access()
	if a == nil {
		return nil, raft.ErrNotLeader // The node is starting.
	}
	caller := a.client
	if c.opts.Caller == CallerMember {
		caller = a.forwarded
	}
	i, err := caller(ctx)
	if err != nil {
		return ctx, err
	}
	return context.WithValue(auth.With(ctx, i), accessKey{}, a), nil
}

// Check refuses the credentials of a caller over HTTP before its body is read: a caller without
// rights must not make the node keep one. The call itself is authenticated again.
func (c *Chain) Check(ctx context.Context, authorization []string, method string) error {
	a := c.opts.Access()
	if a == nil {
		return nil // The node is starting, and will refuse the call.
	}
	_, err := a.Authenticate(ctx, auth.Credentials{Authorization: authorization, Certificate: certificate(ctx)})
	if err == nil {
		return nil
	}
	if log := c.logged(); log != nil {
		recordDenied(ctx, log, method, err)
	}
	return Status(err)
}

// client authenticates a client.
func (a *Access) client(ctx context.Context) (*auth.Identity, error) {
	in, _ := metadata.FromIncomingContext(ctx)
	return a.Authenticate(ctx, auth.Credentials{Authorization: in.Get("authorization"), Certificate: certificate(ctx)})
}

// forwarded takes the identity from the member that forwards the call.
func (a *Access) forwarded(ctx context.Context) (*auth.Identity, error) {
	from, ok := peer.From(ctx)
	in, _ := metadata.FromIncomingContext(ctx)
	switch passports := in.Get(passportHeader); {
	case ok && len(passports) == 1:
		i, err := a.Passports.Verify([]byte(passports[0]), from.RaftID)
		if errors.Is(err, auth.ErrNoSecret) {
			err = fmt.Errorf("%w: %w", raft.ErrNotLeader, err) // It may be about to get the secret.
		}
		return i, err
	case ok && a.Open && len(passports) == 0:
		return auth.Local, nil
	default:
		return nil, &contract.Error{Reason: contract.ReasonUnauthenticated,
			Message: "the member forwards a call without the identity of its caller; configure access in the same way on all nodes"}
	}
}

// passport returns the header of a call that this node forwards; empty: an open node has none.
func passport(ctx context.Context) (string, error) {
	a, _ := ctx.Value(accessKey{}).(*Access)
	i := auth.From(ctx)
	switch {
	case a == nil || i == auth.Local && a.Open:
		return "", nil
	case i == nil:
		return "", fmt.Errorf("%w: the call has no identity", raft.ErrNotLeader)
	}
	text, err := a.Passports.Make(i, a.Node)
	if err != nil {
		return "", fmt.Errorf("%w: %w", raft.ErrNotLeader, err)
	}
	return string(text), nil
}

// allow refuses a caller that has none of the roles of a method, or not the tenants that it needs.
func (m *Method) allow(i *auth.Identity) error {
	fault := ""
	switch {
	case i != nil && i.WatchOnly && !m.watches:
		fault = "is no watch, and the caller has a ticket for a watch"
	case !i.May(m.roles):
		fault = fmt.Sprintf("needs one of the roles %s, and %s has %s", m.roles, i.Name, orNone(i.Roles))
	case m.every && !i.Tenants.All:
		fault = fmt.Sprintf("is about all tenants, and %s has some", i.Name)
	default:
		return nil
	}
	return &contract.Error{Reason: contract.ReasonPermissionDenied, Message: m.name + " " + fault + "; ask an admin of the cluster"}
}

func orNone(r auth.Roles) string {
	if r == 0 {
		return "none"
	}
	return r.String()
}

// checkedStream is a stream that ends when its caller's right does.
type checkedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *checkedStream) Context() context.Context { return s.ctx }

// SendMsg sends nothing after the caller has lost its right.
func (s *checkedStream) SendMsg(m any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg receives nothing after the caller has lost its right.
func (s *checkedStream) RecvMsg(m any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return s.ServerStream.RecvMsg(m)
}

// StillAllowed refuses a call that has waited and whose caller has lost its right meanwhile
// (SEC-5).
func StillAllowed(ctx context.Context) error {
	if a, _ := ctx.Value(accessKey{}).(*Access); a != nil {
		return a.Valid(ctx, auth.From(ctx))
	}
	return nil
}

// whileAllowed answers a stream with next until its caller has lost its right (SEC-5): its error is
// then why.
func (a *Access) whileAllowed(ctx context.Context, ss grpc.ServerStream, clientStreams bool, next func(grpc.ServerStream) error) error {
	i := auth.From(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() {
		if err := a.Valid(ctx, i); err != nil {
			cancel(err)
			return
		}
		timer.Reset(a.CheckEvery)
	})
	defer timer.Stop()
	timer.Reset(a.CheckEvery)
	answered := make(chan error, 1)
	if answer := func() { answered <- next(&checkedStream{ss, ctx}) }; clientStreams {
		// It may wait for a message of the client, which ends once the stream has its error.
		go answer()
	} else {
		answer()
	}
	select {
	case err := <-answered:
		if why := context.Cause(ctx); err != nil && why != nil && !errors.Is(why, ctx.Err()) {
			return why
		}
		return err
	case <-ctx.Done():
		if why := context.Cause(ctx); !errors.Is(why, ctx.Err()) {
			return why
		}
		return <-answered
	}
}
