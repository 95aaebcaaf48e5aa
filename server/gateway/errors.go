package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"runlog/proto/contract"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
)

// writeError answers with google.rpc.Status as JSON, also if the request asked for a stream.
func writeError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if !rpc.HasReason(err) {
		if e := reasonOf(ctx, status.Convert(err), r); e != nil {
			err = rpc.Encode(e)
		}
	}
	rpc.WriteError(w, err)
}

// reasonOf returns the contract's error for an error of the gateway itself, if there is one: for a
// body or a parameter that it cannot decode, for an append whose deadline passed, and for the
// connection to its own server, which ends only with the node.
func reasonOf(ctx context.Context, st *status.Status, r *http.Request) *contract.Error {
	switch st.Code() {
	case codes.InvalidArgument:
		if body, ok := r.Body.(*requestBody); ok && body.fault != nil {
			return body.fault
		}
		if e := explainQuery(ctx, r); e != nil {
			return e
		}
		// It may quote a header, which need not be text.
		return &contract.Error{Reason: contract.ReasonInvalidArgumentField, Message: strings.ToValidUTF8(st.Message(), "\uFFFD")}
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		if r.Method != http.MethodGet {
			return &contract.Error{Reason: contract.ReasonOutcomeUnknown, DeadlineExceeded: st.Code() == codes.DeadlineExceeded,
				Message: "the call ended before the answer; the events may be stored or not: " + st.Message()}
		}
		if st.Code() == codes.Unavailable {
			return &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping: " + st.Message()}
		}
	}
	return nil
}

// explainQuery describes what is wrong with the parameters of a GET or a DELETE that has a route.
func explainQuery(ctx context.Context, r *http.Request) *contract.Error {
	name, routed := runtime.RPCMethod(ctx)
	pattern, _ := runtime.HTTPPathPattern(ctx)
	if !routed || r.Method != http.MethodGet && r.Method != http.MethodDelete {
		return nil
	}
	// "/runlog.v1.RunService/GetRun" is the method runlog.v1.RunService.GetRun.
	full := strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(full))
	if method, ok := d.(protoreflect.MethodDescriptor); err == nil && ok {
		return decode.ExplainQuery(r.URL.RawQuery, method.Input(), pattern)
	}
	return nil
}

// writeRoutingError answers a request for which grpc-gateway has no route.
func (g *gateway) writeRoutingError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	switch code {
	case http.StatusMethodNotAllowed:
		methods := g.routes.methods(r)
		if slices.Contains(methods, http.MethodGet) && !streamed(r.URL.EscapedPath()) {
			methods = append(methods, http.MethodHead)
		}
		writeMethodNotAllowed(w, r, methods)
	case http.StatusBadRequest:
		writeError(ctx, nil, nil, w, r, rpc.Encode(rpc.Invalid("", "the path is not well formed: "+r.URL.EscapedPath())))
	default:
		writeRouteNotFound(w, r)
	}
}

func writeRouteNotFound(w http.ResponseWriter, r *http.Request) {
	writeError(r.Context(), nil, nil, w, r, rpc.Encode(&contract.Error{Reason: contract.ReasonRouteNotFound,
		Message: fmt.Sprintf("no route for %s %s; GET /openapi.json lists them", r.Method, r.URL.EscapedPath())}))
}

// writeMethodNotAllowed answers with the allowed methods (RFC 9110).
func writeMethodNotAllowed(w http.ResponseWriter, r *http.Request, methods []string) {
	allowed := strings.Join(methods, ", ")
	w.Header().Set("Allow", allowed)
	writeError(r.Context(), nil, nil, w, r, rpc.Encode(&contract.Error{Reason: contract.ReasonMethodNotAllowed,
		Message: fmt.Sprintf("%s takes %s, not %s; GET /openapi.json lists the routes", r.URL.EscapedPath(), allowed, r.Method)}))
}
