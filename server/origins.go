package server

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"runlog/proto/contract"
	"runlog/server/gateway"
	"runlog/server/rpc"
)

// ownPages answers a request of a web page only if the page is one of this listener or of an
// allowed origin (SEC-12). Without it a foreign page could have the browser send what needs no
// preflight request, with the rights of this machine.
func ownPages(next http.Handler, allowed gateway.Origins, remedy string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A proxy may have changed the host, but no page can say that it is of the same origin.
		if r.Header.Get("Sec-Fetch-Site") != "same-origin" {
			err := refuseOrigins(r.Header["Origin"], r.Host, allowed, remedy)
			if err == nil && embedded(r) {
				err = foreignPage("another site", remedy)
			}
			if err != nil {
				w.Header().Add("Vary", "Origin")
				rpc.WriteError(w, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// embedded reports whether a page of another site has the browser load this request, such as by the
// address of an image, which has no Origin. A link that a person follows is none.
func embedded(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && len(r.Header["Origin"]) == 0 && r.Header.Get("Sec-Fetch-Dest") != "document"
}

// ownOrigins returns the options of the gRPC server for clients. It refuses calls of foreign web
// pages, which come by a proxy for gRPC-Web. No page can speak the protocol between nodes.
func ownOrigins(allowed gateway.Origins) []grpc.ServerOption {
	check := func(ctx context.Context) error {
		host := strings.Join(metadata.ValueFromIncomingContext(ctx, ":authority"), "")
		return refuseOrigins(metadata.ValueFromIncomingContext(ctx, "origin"), host, allowed, nameOrigin)
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := check(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := check(ss.Context()); err != nil {
				return err
			}
			return next(srv, ss)
		}),
	}
}

// refuseOrigins returns the error, a gRPC status, for a request with a foreign origin to a host.
func refuseOrigins(origins []string, host string, allowed gateway.Origins, remedy string) error {
	own := func(origin string) bool {
		u, err := url.Parse(origin)
		return origin == "" || err == nil && u.Host != "" && strings.EqualFold(u.Host, host) || allowed.Allow(origin)
	}
	for _, origin := range origins {
		if !own(origin) {
			return foreignPage(contract.Quote(origin), remedy)
		}
	}
	return nil
}

func foreignPage(origin, remedy string) error {
	return rpc.Status(&contract.Error{Reason: contract.ReasonPermissionDenied,
		Message: "pages of " + origin + " may not call this listener" + remedy})
}

// nameOrigin is the remedy at listeners that --cors-origins is for.
const nameOrigin = ": start the node with their origin in --cors-origins"

// ownNames answers a request only if it names this machine, where every caller has every right. A
// web page reaches such a listener if the name of its site comes to mean 127.0.0.1 (DNS rebinding):
// to the browser the node is then the page's own site, and CORS does not apply. Such a request
// names the site. A request with an IP address does not come from such a page.
func ownNames(next http.Handler, advertised, remedy string) http.Handler {
	own := hostName(advertised)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostName(r.Host)
		if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(name) != nil ||
			name == own {
			next.ServeHTTP(w, r)
			return
		}
		rpc.WriteError(w, rpc.Status(&contract.Error{Reason: contract.ReasonPermissionDenied,
			Message: "this node answers for localhost and IP addresses, because its callers need no credentials, and not for the host " +
				contract.Quote(name) + ": call it by such a name" + remedy}))
	})
}

// hostName returns the host in an authority, which has a port or none.
func hostName(authority string) string {
	host := authority
	if h, _, err := net.SplitHostPort(authority); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}
