package gateway

import (
	"context"
	"fmt"
	"net/http"

	"runlog/server/rpc"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// routes finds the methods of a path, which grpc-gateway does not expose. It has the same routes,
// with handlers that only record that they were called.
type routes struct{ mux *runtime.ServeMux }

func newRoutes(services []*rpc.Service) (routes, error) {
	mux := runtime.NewServeMux(
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithRoutingErrorHandler(func(context.Context, *runtime.ServeMux, runtime.Marshaler, http.ResponseWriter, *http.Request, int) {}),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
	for _, s := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(s.Desc.ServiceName))
		if err != nil {
			return routes{}, fmt.Errorf("server: routes of %s: %w", s.Desc.ServiceName, err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			if err := addRoutes(mux, methods.Get(i)); err != nil {
				return routes{}, err
			}
		}
	}
	return routes{mux}, nil
}

func addRoutes(mux *runtime.ServeMux, m protoreflect.MethodDescriptor) error {
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	for method, path := range map[string]string{http.MethodGet: rule.GetGet(), http.MethodPost: rule.GetPost(), http.MethodPatch: rule.GetPatch(),
		http.MethodPut: rule.GetPut(), http.MethodDelete: rule.GetDelete()} {
		if path == "" {
			continue
		}
		if err := mux.HandlePath(method, path, reach); err != nil {
			return fmt.Errorf("server: route %s: %w", path, err)
		}
	}
	return nil
}

// reached is a ResponseWriter that records a call and is not written to.
type reached struct {
	http.ResponseWriter
	yes bool
}

func reach(w http.ResponseWriter, _ *http.Request, _ map[string]string) { w.(*reached).yes = true }

// methods returns the methods of the request's path.
func (rs routes) methods(r *http.Request) []string {
	var found []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete} {
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
