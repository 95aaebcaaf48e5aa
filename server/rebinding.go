package server

import (
	"net"
	"net/http"
	"strings"

	"runlog/proto/contract"
	"runlog/server/rpc"
)

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
