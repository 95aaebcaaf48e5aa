package rpc

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
)

// AdmitAdmin lets the caller of a request to the admin listener in, as the chain does with the
// caller of a method that only an admin of all tenants may call (SEC-12). The error is a status.
func (c *Chain) AdmitAdmin(r *http.Request) (context.Context, error) {
	ctx := metadata.NewIncomingContext(WithHTTPClient(r), metadata.MD{"authorization": r.Header["Authorization"]})
	return c.admitAdmin(ctx, &Method{name: r.Method + " " + r.URL.Path, emergency: r.Method == http.MethodGet})
}

// AdmitAdminStream does the same with the streams of a gRPC server at the admin listener.
func (c *Chain) AdmitAdminStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if _, err := c.admitAdmin(ss.Context(), &Method{name: info.FullMethod, emergency: true}); err != nil {
		return err
	}
	return next(srv, ss)
}

// admitAdmin admits the caller of a method of the admin listener. What only reads works without a
// leader (SEC-13).
func (c *Chain) admitAdmin(ctx context.Context, m *Method) (context.Context, error) {
	m.roles, m.every, m.administrative = auth.RolesOf(runlogv1.Role_ADMIN), true, true
	ctx, err := c.admit(ctx, m, nil)
	return ctx, Status(err)
}
