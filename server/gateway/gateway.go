package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/server/rpc/wire"
)

// maxPathBytes is more than any route with a runId needs, every byte of it percent-encoded.
const maxPathBytes = 2048

// Options of the gateway. All are required but where a default is named.
type Options struct {
	// Conn is the in-memory connection to the gRPC server (Dial).
	Conn     *grpc.ClientConn
	Limits   decode.Limits
	Services []*rpc.Service
	// BodyTimeout is how long a body may take to come. Default: rpc.BodyTimeout.
	BodyTimeout time.Duration
}

// New returns the handler of the API as JSON and Server-Sent Events. Every call goes over the
// connection to the gRPC server, and so through its chain (D14). No header is forwarded: none means
// anything yet.
func New(ctx context.Context, opts Options) (http.Handler, error) { return newGateway(ctx, opts) }

func newGateway(ctx context.Context, opts Options) (*gateway, error) {
	setQueryParser()
	routes, err := newRoutes(opts.Services)
	if err != nil {
		return nil, err
	}
	g := &gateway{routes: routes, limits: opts.Limits, bodyTimeout: cmp.Or(opts.BodyTimeout, rpc.BodyTimeout)}
	json := wire.NewJSON()
	g.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &bodyMarshaler{json}),
		runtime.WithMarshalerOption(mimeEventStream, &eventStreamMarshaler{json}),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingTrailerMatcher(func(string) (string, bool) { return "", false }),
		// A runId is one segment, in which this mode unescapes slashes too, after it has split the
		// path.
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
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

// setQueryParser sets grpc-gateway's parser, which it keeps for the whole process.
var setQueryParser = sync.OnceFunc(func() { runtime.SetQueryParameterParser(decode.Query{})(nil) })

// gateway lets requests in to grpc-gateway.
type gateway struct {
	mux         *runtime.ServeMux
	routes      routes
	limits      decode.Limits
	bodyTimeout time.Duration
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := checkAddress(r.URL); err != nil {
		refuseUnread(w, r, err)
		return
	}
	// Without a raw path grpc-gateway unescapes the decoded path once more.
	r.URL.RawPath = r.URL.EscapedPath()
	prepareStream(w, r)
	if r.Method != http.MethodPost {
		if !refuseBody(w, r) {
			g.mux.ServeHTTP(w, r)
		}
		return
	}
	if err := checkContentType(r.Header); err != nil {
		refuseUnread(w, r, err)
		return
	}
	// Ignored, an expectedLastSeq beside the body would not be checked.
	if fault := decode.RefuseQuery(r.URL.RawQuery); fault != nil {
		refuseUnread(w, r, rpc.Encode(fault))
		return
	}
	if err := g.readBody(w, r); err != nil {
		refuseUnread(w, r, err)
		return
	}
	g.mux.ServeHTTP(w, r)
}

// checkAddress refuses what cannot be an address of this API. What net/http cannot read at all,
// such as %zz in a path, it answers by itself with a bare 400.
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
