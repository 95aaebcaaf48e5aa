package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// newGateway serves the API as JSON and Server-Sent Events over conn, the in-memory connection to the
// gRPC server, so that every call goes through its interceptors (D14). No header is forwarded: none
// means anything yet.
func newGateway(ctx context.Context, conn *grpc.ClientConn, maxBody int) (http.Handler, error) {
	refuseStrangeParameters()
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, newJSONMarshaler()),
		runtime.WithMarshalerOption(mimeEventStream, &eventStreamMarshaler{newJSONMarshaler()}),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingTrailerMatcher(func(string) (string, bool) { return "", false }),
		// A runId is one segment, in which this mode unescapes slashes too, after it has split the path.
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithErrorHandler(writeError),
		runtime.WithRoutingErrorHandler(writeRoutingError),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisableChunkedEncoding(),
	)
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		runlogv1.RegisterRunServiceHandler,
		runlogv1.RegisterEventServiceHandler,
		runlogv1.RegisterProjectionServiceHandler,
	} {
		if err := register(ctx, mux, conn); err != nil {
			return nil, fmt.Errorf("server: gateway: %w", err)
		}
	}
	return &gateway{mux: mux, maxBody: int64(maxBody)}, nil
}

// gateway prepares requests for grpc-gateway.
type gateway struct {
	mux     *runtime.ServeMux
	maxBody int64
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if query, err := url.QueryUnescape(r.URL.RawQuery); err == nil && !utf8.ValidString(r.URL.Path+query) {
		writeError(r.Context(), g.mux, nil, w, r, encodeError(invalid("", "the address holds text that is not UTF-8")))
		return
	}
	// Without a raw path grpc-gateway unescapes the decoded path once more.
	r.URL.RawPath = r.URL.EscapedPath()
	prepareStream(w, r)
	if r.Method == http.MethodPost {
		if err := g.prepareBody(w, r); err != nil {
			writeError(r.Context(), g.mux, nil, w, r, encodeError(err))
			return
		}
	}
	g.mux.ServeHTTP(w, r)
}

// prepareBody bounds a body and turns flat 1.1 events in it into envelopes.
func (g *gateway) prepareBody(w http.ResponseWriter, r *http.Request) *contract.Error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &contract.Error{Reason: contract.ReasonPayloadTooLarge,
			Message: fmt.Sprintf("the request has more than %d bytes; send fewer events at a time", g.maxBody)}
	case err != nil:
		return invalid("", "the body could not be read: "+err.Error())
	}
	// Only a body that says so somewhere can hold a flat event.
	if bytes.Contains(body, []byte(`"1.1"`)) {
		if body, err = normalizeBody(r.URL.RawPath, body); err != nil {
			var own *contract.Error
			if errors.As(err, &own) {
				return own
			}
			return invalid("", "the body is not the JSON of a request: "+err.Error())
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return nil
}

// normalizeBody rewrites the events of a request; all else stays as it is.
func normalizeBody(path string, body []byte) ([]byte, error) {
	switch {
	case strings.HasSuffix(path, "/events:batchAppend"):
		return rewriteMember(body, "requests", "requests", func(request json.RawMessage, at string) (json.RawMessage, error) {
			return rewriteMember(request, "events", at+".events", normalizeEvent)
		})
	case strings.HasSuffix(path, "/events:append"), path == "/v1/runs":
		return rewriteMember(body, "events", "events", normalizeEvent)
	default:
		return body, nil
	}
}

func normalizeEvent(event json.RawMessage, at string) (json.RawMessage, error) {
	out, err := contract.NormalizeFlat(event)
	var own *contract.Error
	if errors.As(err, &own) {
		for i := range own.Violations {
			own.Violations[i].Field = at + "." + own.Violations[i].Field
		}
	}
	return out, err
}

// rewriteMember maps each element of the array under name; at is the array's path for messages.
func rewriteMember(object []byte, name, at string, rewrite func(element json.RawMessage, at string) (json.RawMessage, error)) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, err
	}
	if members[name] == nil {
		return object, nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(members[name], &elements); err != nil {
		return nil, err
	}
	for i := range elements {
		out, err := rewrite(elements[i], fmt.Sprintf("%s[%d]", at, i))
		if err != nil {
			return nil, err
		}
		elements[i] = out
	}
	var err error
	if members[name], err = json.Marshal(elements); err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// refuseStrangeParameters sets grpc-gateway's parser, which it keeps for the whole process.
var refuseStrangeParameters = sync.OnceFunc(func() { runtime.SetQueryParameterParser(strictQuery{})(nil) })

// strictQuery refuses parameters that a request does not have: ignored, a mistyped filter would answer with
// more than was asked for.
type strictQuery struct{ known runtime.DefaultQueryParser }

func (q strictQuery) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	fields := m.ProtoReflect().Descriptor().Fields()
	for name := range values {
		first, _, _ := strings.Cut(name, ".")
		if fields.ByJSONName(first) == nil && fields.ByName(protoreflect.Name(first)) == nil {
			return fmt.Errorf("%q is no parameter of this call; GET /openapi.json lists them", name)
		}
	}
	return q.known.Parse(m, values, filter)
}

// writeError answers with google.rpc.Status as JSON, also to who asked for a stream, and the HTTP code of
// the contract.
func writeError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	st := status.Convert(err)
	code := runtime.HTTPStatusFromCode(st.Code())
	reasoned := false
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reasoned = true
			code = httpStatus(st.Code(), contract.Reason(d.Reason))
		case *errdetails.RetryInfo:
			seconds := math.Ceil(d.RetryDelay.AsDuration().Seconds())
			w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
		}
	}
	if !reasoned {
		if e := reasonOf(st, r); e != nil {
			st, code = status.Convert(encodeError(e)), e.HTTP()
		}
	}
	writeStatus(w, code, st)
}

// reasonOf gives a reason to what the gateway says itself, where the contract has one: about a body or a
// parameter that it cannot decode, and about an append that it gave up waiting for.
func reasonOf(st *status.Status, r *http.Request) *contract.Error {
	switch st.Code() {
	case codes.InvalidArgument:
		return &contract.Error{Reason: contract.ReasonInvalidArgumentField, Message: st.Message()}
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		if r.Method == http.MethodPost {
			return &contract.Error{Reason: contract.ReasonOutcomeUnknown, DeadlineExceeded: st.Code() == codes.DeadlineExceeded,
				Message: "the call ended before the answer; the events may be stored or not: " + st.Message()}
		}
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

func writeRoutingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	st := status.New(codes.NotFound, fmt.Sprintf("no route for %s %s; GET /openapi.json lists them", r.Method, r.URL.Path))
	switch code {
	case http.StatusMethodNotAllowed:
		st = status.New(codes.Unimplemented, fmt.Sprintf("%s does not take %s; GET /openapi.json lists what it takes", r.URL.Path, r.Method))
	case http.StatusBadRequest:
		st = status.New(codes.InvalidArgument, "the path is not well formed: "+r.URL.EscapedPath())
	}
	writeStatus(w, code, st)
}

// payloadAsStruct makes reads over HTTP answer with a natural payload unless the request says otherwise.
func payloadAsStruct(req any) {
	switch r := req.(type) {
	case *runlogv1.ListEventsRequest:
		if r.PayloadForm == runlogv1.PayloadForm_FORM_UNSPECIFIED {
			r.PayloadForm = runlogv1.PayloadForm_STRUCT
		}
	case *runlogv1.ReadEventsRequest:
		if r.PayloadForm == runlogv1.PayloadForm_FORM_UNSPECIFIED {
			r.PayloadForm = runlogv1.PayloadForm_STRUCT
		}
	}
}

func structUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	payloadAsStruct(req)
	return invoke(ctx, method, req, reply, cc, opts...)
}

// gatewayStreams bounds the streams that are open over HTTP: they share one connection with every other
// HTTP call, and must not use up its streams (D12).
type gatewayStreams chan struct{}

// open is the client's stream interceptor. The context of a stream ends with its HTTP request.
func (g gatewayStreams) open(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	select {
	case g <- struct{}{}:
	default:
		return nil, encodeError(tooManyStreams())
	}
	context.AfterFunc(ctx, func() { <-g })
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &structClientStream{ClientStream: s}, nil
}

type structClientStream struct {
	grpc.ClientStream
	end error // of a stream that ended before it began
}

func (s *structClientStream) SendMsg(m any) error {
	payloadAsStruct(m)
	return s.ClientStream.SendMsg(m)
}

// Header waits for the begin of the stream. A call that was refused has none, and its error comes here,
// so that the gateway answers with it as with that of any other call: what is found out later can only
// be written into the stream.
func (s *structClientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil || md != nil {
		return md, err
	}
	if s.end = s.ClientStream.RecvMsg(&emptypb.Empty{}); errors.Is(s.end, io.EOF) {
		return nil, nil
	}
	return nil, s.end
}

func (s *structClientStream) RecvMsg(m any) error {
	if s.end != nil {
		return s.end
	}
	return s.ClientStream.RecvMsg(m)
}
