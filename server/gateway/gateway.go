package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	"runlog/server/budget"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/server/rpc/wire"
)

// maxPathBytes exceeds the length of every route with a runId, even if each byte is
// percent-encoded.
const maxPathBytes = 2048

// Options configure the gateway. All are required unless a default is named.
type Options struct {
	// Conn calls the services (Dial).
	Conn     grpc.ClientConnInterface
	Limits   decode.Limits
	Services []*rpc.Service
	// Check refuses credentials before the body of a request is read. Default: none are refused.
	Check func(ctx context.Context, authorization []string, method string) error
	// BodyTimeout bounds the time to receive a body. Default: decode.BodyTimeout.
	BodyTimeout time.Duration
}

// New returns the handler of the API as JSON and Server-Sent Events. Every call passes the chain of
// the gRPC server (D14). grpc-gateway passes Authorization on; no other header names a caller.
func New(ctx context.Context, opts Options) (http.Handler, error) { return newGateway(ctx, opts) }

func newGateway(ctx context.Context, opts Options) (*gateway, error) {
	setQueryParser()
	routes, err := newRoutes(opts.Services)
	if err != nil {
		return nil, err
	}
	g := &gateway{routes: routes, limits: opts.Limits, bodyTimeout: cmp.Or(opts.BodyTimeout, decode.BodyTimeout), check: opts.Check}
	if g.check == nil {
		g.check = func(context.Context, []string, string) error { return nil }
	}
	json := wire.NewJSON()
	g.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &bodyMarshaler{json}),
		runtime.WithMarshalerOption(mimeEventStream, &eventStreamMarshaler{json}),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingTrailerMatcher(func(string) (string, bool) { return "", false }),
		// A runId is one segment. In this mode grpc-gateway splits the path first and then
		// unescapes slashes too.
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithForwardResponseOption(writeTag),
		runtime.WithForwardResponseRewriter(asNatural),
		runtime.WithErrorHandler(writeError),
		runtime.WithRoutingErrorHandler(g.writeRoutingError),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisableChunkedEncoding(),
	)
	for _, s := range opts.Services {
		if s.Gateway == nil {
			continue
		}
		if err := s.Gateway(ctx, g.mux, opts.Conn); err != nil {
			return nil, fmt.Errorf("server: gateway: %w", err)
		}
	}
	return g, nil
}

// setQueryParser sets grpc-gateway's parser of queries, which is global to the process.
var setQueryParser = sync.OnceFunc(func() { runtime.SetQueryParameterParser(decode.Query{})(nil) })

// gateway validates requests and passes them to grpc-gateway.
type gateway struct {
	mux         *runtime.ServeMux
	routes      routes
	limits      decode.Limits
	bodyTimeout time.Duration
	check       func(ctx context.Context, authorization []string, method string) error
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := checkAddress(r.URL); err != nil {
		refuseUnread(w, r, err)
		return
	}
	r = r.WithContext(rpc.WithHTTPClient(r))
	// Without a raw path grpc-gateway unescapes the decoded path once more.
	r.URL.RawPath = r.URL.EscapedPath()
	prepareStream(w, r)
	passTag(r)
	takeTicket(r)
	keepCredentials(r.Header)
	if r.Method != http.MethodPost && r.Method != http.MethodPatch && r.Method != http.MethodPut {
		if !refuseBody(w, r) {
			g.mux.ServeHTTP(w, r.WithContext(withAsked(r.Context())))
		}
		return
	}
	if err := checkContentType(r.Header); err != nil {
		refuseUnread(w, r, err)
		return
	}
	// If it were ignored, an expectedLastSeq in the query would not be checked.
	if fault := decode.RefuseQuery(r.URL.RawQuery); fault != nil {
		refuseUnread(w, r, rpc.Encode(fault))
		return
	}
	var grant budget.Grant
	defer grant.Release()
	if err := g.check(r.Context(), r.Header["Authorization"], r.Method+" "+r.URL.Path); err != nil {
		refuseUnread(w, r, err)
		return
	}
	if err := g.readBody(w, r, &grant); err != nil {
		refuseUnread(w, r, err)
		return
	}
	g.mux.ServeHTTP(w, r)
}

// keepCredentials replaces values of Authorization that gRPC cannot carry by one that is refused.
// grpc-gateway leaves such values out, as if the caller had sent none, or one less.
func keepCredentials(h http.Header) {
	for i, value := range h["Authorization"] {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			h["Authorization"][i] = "?"
		}
	}
}

// checkAddress refuses what cannot be an address of this API. net/http itself answers a bare 400 to
// addresses that it cannot parse, such as %zz in a path.
func checkAddress(u *url.URL) error {
	if n := len(u.EscapedPath()); n > maxPathBytes {
		return rpc.Encode(rpc.Invalid("", fmt.Sprintf("the path has %d bytes: a runId has at most 256", n)))
	}
	// A query that cannot be unescaped is refused later, by parameter.
	query, err := url.QueryUnescape(u.RawQuery)
	if !utf8.ValidString(u.Path) || err == nil && !utf8.ValidString(query) {
		return rpc.Encode(rpc.Invalid("", "the address holds text that is not UTF-8"))
	}
	return nil
}
