package workload

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	runlogv1 "runlog/proto/runlog/v1"
)

// Bearer is an API token, as the credentials of a connection.
type Bearer string

const authorization = "authorization"

// GetRequestMetadata is the header of each call.
func (b Bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{authorization: b.header()}, nil
}

// RequireTransportSecurity reports that simulated networks need none.
func (Bearer) RequireTransportSecurity() bool { return false }

func (b Bearer) header() string { return "Bearer " + string(b) }

// in returns a context whose calls bear the token, over connections without credentials.
func (b Bearer) in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, authorization, b.header())
}

// token makes a token, through the connections of an admin. decides are the types of the decisions
// that nodes store in its name. It retries until ctx ends, so that several tokens may be made:
// their names begin as given.
func (w *worker) token(ctx context.Context, name string, tenants, decides []string, roles ...runlogv1.Role_Value) (token Bearer, identity string, ok bool) {
	ok = w.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		own := name + "-" + newID(w.rng)
		identity = "token:" + own
		w.clients.decisions.allow(identity, decides)
		made, err := runlogv1.NewAccessServiceClient(conn).CreateToken(ctx, &runlogv1.CreateTokenRequest{Name: own, Tenants: tenants, Roles: roles})
		token = Bearer(made.GetToken())
		return err
	})
	return token, identity, ok
}
