package programtest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// Closed is an address of this machine where nothing listens. The system gives its port to no
// server that asks for a free one, as it would that of a listener that was closed.
const Closed = "127.0.0.1:1"

// ServeGRPC serves what register adds until the test ends, and returns the address.
func ServeGRPC(t testing.TB, register func(s grpc.ServiceRegistrar), options ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	register(s)
	ended := make(chan struct{})
	go func() { _ = s.Serve(l); close(ended) }()
	t.Cleanup(func() { s.Stop(); <-ended })
	return l.Addr().String()
}

// Door returns the address of a node that knows the credentials of each caller, with some roles.
// Without roles, it refuses them.
func Door(t testing.TB, roles ...runlogv1.Role_Value) string {
	t.Helper()
	return ServeGRPC(t, func(s grpc.ServiceRegistrar) { runlogv1.RegisterAccessServiceServer(s, doorman{roles: roles}) })
}

// doorman answers whose credentials a call has.
type doorman struct {
	runlogv1.UnimplementedAccessServiceServer
	roles []runlogv1.Role_Value
}

// WhoAmI answers as a node that demands credentials.
func (d doorman) WhoAmI(context.Context, *runlogv1.WhoAmIRequest) (*runlogv1.WhoAmIResponse, error) {
	if len(d.roles) > 0 {
		return &runlogv1.WhoAmIResponse{Name: "token:ci", Tenants: []string{"*"}, Roles: d.roles}, nil
	}
	refusal, err := status.New(codes.Unauthenticated, "this node demands authentication").
		WithDetails(&errdetails.ErrorInfo{Reason: string(client.ReasonUnauthenticated), Domain: "runlog"})
	if err != nil {
		return nil, err
	}
	return nil, refusal.Err()
}
