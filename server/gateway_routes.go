package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	runlogv1 "runlog/proto/runlog/v1"
)

// gatewayServices are the services that HTTP has.
var gatewayServices = []struct {
	file     protoreflect.FileDescriptor
	register func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error
}{
	{runlogv1.File_runlog_v1_run_service_proto, runlogv1.RegisterRunServiceHandler},
	{runlogv1.File_runlog_v1_event_service_proto, runlogv1.RegisterEventServiceHandler},
	{runlogv1.File_runlog_v1_projection_service_proto, runlogv1.RegisterProjectionServiceHandler},
	{runlogv1.File_runlog_v1_audit_service_proto, runlogv1.RegisterAuditServiceHandler},
	{runlogv1.File_runlog_v1_cluster_service_proto, runlogv1.RegisterClusterServiceHandler},
}

// routes knows which methods a path has, which grpc-gateway does not tell: it has the same routes,
// with handlers that do nothing but tell that they were reached.
type routes struct{ mux *runtime.ServeMux }

func newRoutes() (routes, error) {
	mux := runtime.NewServeMux(
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithRoutingErrorHandler(func(context.Context, *runtime.ServeMux, runtime.Marshaler, http.ResponseWriter, *http.Request, int) {}),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
	for _, s := range gatewayServices {
		for i := range s.file.Services().Len() {
			methods := s.file.Services().Get(i).Methods()
			for j := range methods.Len() {
				rule, _ := proto.GetExtension(methods.Get(j).Options(), annotations.E_Http).(*annotations.HttpRule)
				for method, path := range map[string]string{http.MethodGet: rule.GetGet(), http.MethodPost: rule.GetPost()} {
					if path == "" {
						continue
					}
					if err := mux.HandlePath(method, path, reach); err != nil {
						return routes{}, fmt.Errorf("server: route %s: %w", path, err)
					}
				}
			}
		}
	}
	return routes{mux}, nil
}

// reached is a ResponseWriter that is not written to.
type reached struct {
	http.ResponseWriter
	yes bool
}

func reach(w http.ResponseWriter, _ *http.Request, _ map[string]string) { w.(*reached).yes = true }

// methods returns those that the request's path has.
func (rs routes) methods(r *http.Request) []string {
	var found []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		probe := r.Clone(r.Context())
		probe.Method = method
		var w reached
		rs.mux.ServeHTTP(&w, probe)
		if w.yes {
			found = append(found, method)
		}
	}
	return found
}
