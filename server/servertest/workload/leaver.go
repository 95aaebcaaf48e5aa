package workload

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// Leaver starts a client that loses its right again and again: its token is revoked while it
// watches. Once the node refuses the token in other calls, the watch must end within a time
// (SEC-5). The connections of host carry no credentials, and those of admin every right. The caller
// must call wait.
func (c *Clients) Leaver(ctx context.Context, host, admin string, within time.Duration) (wait func(), err error) {
	w, err := c.newGuest(host)
	if err != nil {
		return nil, err
	}
	a, err := c.newGuest(admin)
	if err != nil {
		w.close()
		return nil, err
	}
	l := &leaver{worker: w, admin: a, within: within}
	return start(func() {
		defer w.close()
		defer a.close()
		for ; ctx.Err() == nil; pause(ctx, c.opts.Think) {
			l.leave(ctx)
		}
	}), nil
}

// start runs a client, and returns what waits for its end.
func start(client func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		client()
	}()
	return func() { <-done }
}

type leaver struct {
	*worker
	admin  *worker
	within time.Duration
}

// leave gets a token, watches with it, has it revoked, and requires that the watch ends.
func (l *leaver) leave(ctx context.Context) {
	var token, id string
	if !l.admin.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		made, err := runlogv1.NewAccessServiceClient(conn).CreateToken(ctx, &runlogv1.CreateTokenRequest{
			Name: "leaver-" + newID(l.rng), Tenants: []string{"tenant-0", "tenant-1"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER},
		})
		token, id = made.GetToken(), made.GetTokenId()
		return err
	}) {
		return
	}
	bearing, cancel := context.WithCancel(Bearer(token).in(ctx))
	defer cancel()
	node := l.rng.IntN(len(l.conns))
	stream, err := l.projections(node).WatchRuns(bearing, &runlogv1.WatchRunsRequest{IncludeExisting: true})
	if err != nil {
		return
	}
	if _, err := stream.Recv(); err != nil || !l.admin.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := runlogv1.NewAccessServiceClient(conn).RevokeToken(ctx, &runlogv1.RevokeTokenRequest{TokenId: id})
		return err
	}) {
		return
	}
	l.awaitRefusal(bearing, node)
	for known := time.Now(); err == nil; {
		if _, err = stream.Recv(); err == nil && time.Since(known) > l.within && ctx.Err() == nil {
			l.clients.opts.Broken("stream after revocation: %s refuses a token for %s, and still answers a watch that was opened with it",
				l.clients.opts.Nodes[node], time.Since(known))
			return
		}
	}
}

// awaitRefusal waits until a node knows that the token of ctx is revoked.
func (l *leaver) awaitRefusal(ctx context.Context, node int) {
	for ; ctx.Err() == nil; pause(ctx, l.clients.opts.Think) {
		called, cancel := context.WithTimeout(ctx, l.patience())
		_, err := runlogv1.NewAccessServiceClient(l.conns[node]).WhoAmI(called, &runlogv1.WhoAmIRequest{})
		cancel()
		if status.Code(err) == codes.Unauthenticated {
			return
		}
	}
}

// insist makes a call, at one node after another, until it succeeds or ctx ends.
func (w *worker) insist(ctx context.Context, do func(context.Context, *grpc.ClientConn) error) bool {
	for ; ctx.Err() == nil; pause(ctx, w.clients.opts.Think) {
		called, cancel := context.WithTimeout(ctx, w.patience())
		err := do(called, w.conns[w.rng.IntN(len(w.conns))])
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}
