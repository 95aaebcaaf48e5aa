package runner

import (
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// guarded refuses the calls of foreign web pages. A page may send requests to any address that its
// visitor can reach, also to a runner on loopback, which executes commands.
//
//   - The browser sends a form or plain text without a question, and asks first for JSON (Fetch,
//     "CORS-safelisted request-header"). Its question gets no answer that allows anything.
//   - If the name of the page's site comes to mean 127.0.0.1 (DNS rebinding), the runner is the
//     page's own site. Such a call names the site, and has no token.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") == "" && !ownName(req.Host) {
			answer(w, http.StatusForbidden, map[string]any{
				"error": "a call without a token is answered for localhost and IP addresses, and not for the host " + strconv.Quote(req.Host) +
					": send a token, or have the proxy name this machine in the header Host",
			})
			return
		}
		if req.Method == http.MethodPost && !isJSON(req.Header) {
			answer(w, http.StatusUnsupportedMediaType, map[string]any{"error": "the body is not declared as JSON: send Content-Type: application/json (curl: --json)"})
			return
		}
		next.ServeHTTP(w, req)
	})
}

// ownName reports whether an authority, with a port or without, can only mean an address that the
// caller has chosen.
func ownName(authority string) bool {
	host := authority
	if h, _, err := net.SplitHostPort(authority); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil
}

func isJSON(h http.Header) bool {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && len(h.Values("Content-Type")) == 1 && kind == "application/json" && (params["charset"] == "" || strings.EqualFold(params["charset"], "utf-8"))
}
