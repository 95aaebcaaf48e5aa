package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	"runlog/server/budget"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/server/rpc/wire"
)

const (
	// lingerTimeout is how long a connection stays open after its request was refused unread.
	// net/http reads a part of the body meanwhile, so that the client gets to read the answer.
	lingerTimeout = time.Second
	// discardTimeout and discardBytes bound how much of a too large body is read.
	discardTimeout = 5 * time.Second
	discardBytes   = 256 << 20
)

// checkContentType accepts the requests of scripts and of the operator's own pages, and refuses
// those of foreign web pages.
//
// A web page may send requests to any address that its visitor can reach, also to a node on
// loopback. The browser does not ask that node first if the body is a form or plain text, or has no
// type (Fetch, "CORS-safelisted request-header"). So only JSON is accepted: for JSON a browser
// first sends OPTIONS, which is answered for pages of some origins only (PagesOptions.Origins). A
// request without a type comes from a browser only if it has an Origin.
func checkContentType(h http.Header) error {
	const want = "send JSON, with Content-Type: application/json (curl: --json)"
	given := h.Values("Content-Type")
	// What is compressed has no bound before it is decompressed.
	if coding := strings.Join(h.Values("Content-Encoding"), ","); coding != "" && !strings.EqualFold(coding, "identity") {
		return rpc.Encode(rpc.Invalid("Content-Encoding", "is "+contract.Quote(coding)+": send the body uncompressed"))
	}
	if len(given) == 0 {
		if _, page := h["Origin"]; page {
			return rpc.Encode(rpc.Invalid("Content-Type", "is required of web pages: "+want))
		}
		return nil
	}
	kind, params, err := mime.ParseMediaType(given[0])
	switch {
	case len(given) > 1 || err != nil || kind != "application/json":
		return rpc.Encode(rpc.Invalid("Content-Type", fmt.Sprintf("is %s: %s", contract.Quote(strings.Join(given, ", ")), want)))
	case params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8"):
		return rpc.Encode(rpc.Invalid("Content-Type", "names another charset than utf-8: "+want))
	}
	return nil
}

// readBody reads the body of a request and replaces it by a requestBody. Its bytes, and the forms
// that it is decoded to, count until the grant is released.
func (g *gateway) readBody(w http.ResponseWriter, r *http.Request, grant *budget.Grant) error {
	most := int64(g.limits.Bytes)
	if r.ContentLength > most {
		discardBody(w, r)
		return rpc.Encode(g.limits.TooLarge())
	}
	// A connection that does not support deadlines is not from the network.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(g.bodyTimeout))
	text, err := g.limits.Body(http.MaxBytesReader(w, r.Body, most), r.ContentLength, isAppend(r.URL.RawPath), grant)
	var spent *contract.Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &spent):
		discardBody(w, r)
		return rpc.Encode(spent)
	case errors.As(err, &tooLarge):
		discardBody(w, r)
		return rpc.Encode(g.limits.TooLarge())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return rpc.Encode(&contract.Error{Reason: contract.ReasonRequestTimeout,
			Message: fmt.Sprintf("the body did not come within %v; nothing was stored", g.bodyTimeout)})
	case err != nil:
		return rpc.Encode(rpc.Invalid("", "the body could not be read: "+err.Error()))
	}
	_ = connection.SetReadDeadline(time.Time{})
	r.Body = &requestBody{Reader: bytes.NewReader(text), text: text, runID: runIDOf(r.URL.RawPath)}
	r.ContentLength = int64(len(text))
	return nil
}

// isAppend reports whether a path is that of appends: their small requests draw from what is kept
// for them.
func isAppend(rawPath string) bool {
	return strings.HasSuffix(rawPath, "/events:append") || strings.HasSuffix(rawPath, "/events:batchAppend")
}

// requestBody is a complete body and the fault that the decoder found in it. grpc-gateway passes on
// the text of a decoder's error only.
type requestBody struct {
	*bytes.Reader
	text  []byte
	runID string // from the path; empty: none
	fault *contract.Error
}

// runIDOf returns the runId of a path such as /v1/runs/{run_id}/events:append; empty: none.
func runIDOf(rawPath string) string {
	rest, ok := strings.CutPrefix(rawPath, "/v1/runs/")
	if !ok {
		return ""
	}
	segment, _, more := strings.Cut(rest, "/")
	if colon := strings.LastIndexByte(segment, ':'); !more && colon >= 0 {
		segment = segment[:colon]
	}
	id, err := url.PathUnescape(segment)
	if err != nil {
		return ""
	}
	return id
}

// discardBody reads the rest of a too large body for a while: a client that writes its whole
// request first would see a broken connection instead of the answer. A client that sent Expect has
// not sent the body, and one of more than discardBytes would not be read to its end.
func discardBody(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" || r.ContentLength > discardBytes {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(discardTimeout))
	_, _ = io.CopyN(io.Discard, r.Body, discardBytes)
}

func (b *requestBody) Close() error { return nil }

// refuseBody refuses a body of a method that takes none, and reports whether it did.
func refuseBody(w http.ResponseWriter, r *http.Request) bool {
	if r.ContentLength == 0 {
		return false
	}
	refuseUnread(w, r, rpc.Encode(rpc.Invalid("", r.Method+" takes no body: leave it out; GET /openapi.json lists the routes that take one")))
	return true
}

// refuseUnread answers a request whose body may not have been read.
func refuseUnread(w http.ResponseWriter, r *http.Request, err error) {
	hangUp(w)
	writeError(r.Context(), nil, nil, w, r, err)
}

// hangUp closes the connection after the answer. Nothing else would do so while a client sends the
// rest of its request slowly.
func hangUp(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerTimeout))
}

// bodyMarshaler decodes bodies with server/rpc/decode. It writes an answer, or a line of a stream.
type bodyMarshaler struct{ *wire.JSON }

// Marshal returns the JSON of an answer. grpc-gateway wraps messages of a stream, and the error
// that ends it, each in a type of its own.
func (m *bodyMarshaler) Marshal(v any) ([]byte, error) {
	switch chunk := v.(type) {
	case map[string]any:
		return m.line("result", chunk["result"])
	case map[string]proto.Message:
		return m.line("error", chunk["error"])
	case *httpbody.HttpBody:
		return chunk.GetData(), nil
	default:
		return m.JSON.Marshal(v)
	}
}

// ContentType returns that of an answer, which is JSON unless the answer is a file.
func (m *bodyMarshaler) ContentType(v any) string {
	if file, ok := v.(*httpbody.HttpBody); ok {
		return file.GetContentType()
	}
	return m.JSON.ContentType(v)
}

func (m *bodyMarshaler) line(name string, v any) ([]byte, error) {
	text, err := m.MarshalLine(v)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(text)+len(`{"result":}`))
	out = append(append(append(out, `{"`...), name...), `":`...)
	return append(append(out, text...), '}'), nil
}

// NewDecoder decodes the requestBody that readBody has made.
func (m *bodyMarshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		body, fromGateway := r.(*requestBody)
		message, isMessage := v.(proto.Message)
		if !fromGateway || !isMessage {
			return fmt.Errorf("server: body of type %T for %T", r, v)
		}
		body.fault = decode.JSON(body.text, message)
		if named, ok := message.(interface{ GetRunId() string }); ok && body.fault == nil && body.runID != "" &&
			named.GetRunId() != "" && named.GetRunId() != body.runID {
			// grpc-gateway would use the path's runId.
			body.fault = rpc.Invalid("runId", fmt.Sprintf("is %s, but the path names run %s: leave it out", contract.Quote(named.GetRunId()), contract.Quote(body.runID)))
		}
		if body.fault != nil {
			return body.fault
		}
		return nil
	})
}
