package server

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"runlog/proto/contract"
	"runlog/server/rpc/decode"
)

// writeError answers with google.rpc.Status as JSON, also to who asked for a stream, and the HTTP
// code of the contract.
func writeError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	st := status.Convert(err)
	code := runtime.HTTPStatusFromCode(st.Code())
	reasoned := false
	for _, d := range st.Details() {
		if d, ok := d.(*errdetails.ErrorInfo); ok {
			reasoned = true
			code = httpStatus(st.Code(), contract.Reason(d.Reason))
		}
	}
	if !reasoned {
		if e := reasonOf(ctx, st, r); e != nil {
			st, code = status.Convert(encodeError(e)), e.HTTP()
		}
	}
	for _, d := range st.Details() {
		if d, ok := d.(*errdetails.RetryInfo); ok {
			seconds := math.Ceil(d.RetryDelay.AsDuration().Seconds())
			w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
		}
	}
	writeStatus(w, code, st)
}

// reasonOf gives a reason to what the gateway says itself, where the contract has one: about a body
// or a parameter that it cannot decode, about an append that it gave up waiting for, and about the
// connection to its own server, which ends with the node alone.
func reasonOf(ctx context.Context, st *status.Status, r *http.Request) *contract.Error {
	switch st.Code() {
	case codes.InvalidArgument:
		if body, ok := r.Body.(*requestBody); ok && body.fault != nil {
			return body.fault
		}
		if e := explainQuery(ctx, r); e != nil {
			return e
		}
		return &contract.Error{Reason: contract.ReasonInvalidArgumentField, Message: st.Message()}
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		if r.Method == http.MethodPost {
			return &contract.Error{Reason: contract.ReasonOutcomeUnknown, DeadlineExceeded: st.Code() == codes.DeadlineExceeded,
				Message: "the call ended before the answer; the events may be stored or not: " + st.Message()}
		}
		if st.Code() == codes.Unavailable {
			return &contract.Error{Reason: contract.ReasonShuttingDown, Message: "the node is stopping: " + st.Message()}
		}
	}
	return nil
}

// explainQuery says what is wrong with the parameters of a GET that was routed.
func explainQuery(ctx context.Context, r *http.Request) *contract.Error {
	name, routed := runtime.RPCMethod(ctx)
	pattern, _ := runtime.HTTPPathPattern(ctx)
	if !routed || r.Method != http.MethodGet {
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

func writeStatus(w http.ResponseWriter, code int, st *status.Status) {
	body, err := newJSONMarshaler().Marshal(st.Proto())
	if err != nil {
		body = []byte(`{"code":13,"message":"the error could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

func httpStatus(code codes.Code, r contract.Reason) int {
	if code == codes.DeadlineExceeded {
		return http.StatusGatewayTimeout
	}
	return r.Info().HTTP
}

// writeRoutingError answers for what grpc-gateway has no route for.
func (g *gateway) writeRoutingError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	switch code {
	case http.StatusMethodNotAllowed:
		writeMethodNotAllowed(w, r, g.routes.methods(r))
	case http.StatusBadRequest:
		writeError(ctx, nil, nil, w, r, encodeError(invalid("", "the path is not well formed: "+r.URL.EscapedPath())))
	default:
		writeRouteNotFound(w, r)
	}
}

func writeRouteNotFound(w http.ResponseWriter, r *http.Request) {
	writeError(r.Context(), nil, nil, w, r, encodeError(&contract.Error{Reason: contract.ReasonRouteNotFound,
		Message: fmt.Sprintf("no route for %s %s; GET /openapi.json lists them", r.Method, r.URL.EscapedPath())}))
}

// writeMethodNotAllowed tells the methods that there are, as RFC 9110 wants it.
func writeMethodNotAllowed(w http.ResponseWriter, r *http.Request, methods []string) {
	allowed := strings.Join(methods, ", ")
	w.Header().Set("Allow", allowed)
	writeError(r.Context(), nil, nil, w, r, encodeError(&contract.Error{Reason: contract.ReasonMethodNotAllowed,
		Message: fmt.Sprintf("%s takes %s, not %s; GET /openapi.json lists the routes", r.URL.EscapedPath(), allowed, r.Method)}))
}
