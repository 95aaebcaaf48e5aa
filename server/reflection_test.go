package server_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestReflection: the admin listener describes the services of clients over gRPC, and serves none.
func TestReflection(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		conn, err := grpc.NewClient(n.Server.Addresses().Admin, n.Dialer(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(n.Context())
		if err != nil {
			t.Fatal(err)
		}
		ask := func(req *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
			t.Helper()
			if err := stream.Send(req); err != nil {
				t.Fatal(err)
			}
			answer, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		found := map[string]bool{}
		list := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		for _, s := range list.GetListServicesResponse().GetService() {
			found[s.Name] = true
		}
		for _, s := range server.Descs() {
			if !found[s.ServiceName] {
				t.Errorf("%s is not listed: %v", s.ServiceName, found)
			}
		}
		symbol := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "runlog.v1.RunService"}})
		if len(symbol.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("no descriptor: %v", symbol)
		}
		_, err = runlogv1.NewRunServiceClient(conn).ListRuns(n.Context(), &runlogv1.ListRunsRequest{})
		servertest.WantEqual(t, "a call of a service", status.Code(err), codes.Unimplemented)
	})
}
