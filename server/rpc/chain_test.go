package rpc

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestServiceOpensUnderACallAPP10: a node may lead, and members forward calls to it, before its
// services are open. A call whose message comes while they open is refused or answered: it neither
// ends the node nor races with the opening.
func TestServiceOpensUnderACallAPP10(t *testing.T) {
	for i := range runlogv1.EventService_ServiceDesc.Methods {
		s := &Service{Desc: &runlogv1.EventService_ServiceDesc}
		m := &s.late(&Chain{}).Methods[i]
		opened := make(chan struct{})
		receive := func(any) error {
			go func() {
				s.Open(runlogv1.UnimplementedEventServiceServer{})
				close(opened)
			}()
			return nil
		}
		// As the cluster's: it lets calls through once the services are open.
		intercept := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			<-opened
			return next(ctx, req)
		}
		_, err := m.Handler(nil, t.Context(), receive, intercept)
		if code := status.Code(Status(err)); code != codes.Unavailable && code != codes.Unimplemented {
			t.Errorf("%s: %v, want the call answered or refused", m.MethodName, err)
		}
	}
}
