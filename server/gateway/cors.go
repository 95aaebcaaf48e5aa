package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Values of Origins that are no origins.
const (
	AnyOrigin       = "*"        // pages of any origin
	LoopbackOrigins = "loopback" // pages of this machine, from any port
)

// corsMaxAge is how long a browser remembers the answer to a preflight request, in seconds.
const corsMaxAge = "600"

// CheckOrigin reports what is wrong with an origin in Origins.
func CheckOrigin(origin string) error {
	if origin == AnyOrigin || origin == LoopbackOrigins || origin == "null" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is no origin; give scheme and host and no path, as in https://ui.example.com, or %s, null, %s or none",
			origin, LoopbackOrigins, AnyOrigin)
	}
	if strings.Contains(u.Host, "*") {
		return fmt.Errorf("%q has a wildcard: name each origin, or %s for all", origin, AnyOrigin)
	}
	if port := u.Port(); u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		return fmt.Errorf("%q has the default port, which browsers leave out of an origin: leave it out too", origin)
	}
	return nil
}

// Origins are the origins whose web pages may call a listener (Fetch, "CORS protocol"): each as a
// browser sends it, AnyOrigin or LoopbackOrigins.
type Origins []string

// answer sets the headers for a page of another origin. It reports whether the request was a
// preflight request, which it answers.
func (o Origins) answer(w http.ResponseWriter, r *http.Request) bool {
	h, origin := w.Header(), r.Header.Get("Origin")
	if len(o) > 0 {
		h.Add("Vary", "Origin")
	}
	if origin == "" || !o.Allow(origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if !preflight(r) {
		h.Set("Access-Control-Expose-Headers", "ETag, Retry-After")
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PATCH, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-None-Match, Last-Event-ID, Cache-Control")
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}

// preflight reports whether a browser asks what a page may send.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// Allow reports whether pages of an origin may call.
func (o Origins) Allow(origin string) bool {
	named := func(one string) bool { return one == AnyOrigin || strings.EqualFold(one, origin) }
	return slices.ContainsFunc(o, named) || slices.Contains(o, LoopbackOrigins) && loopback(origin)
}

// loopback reports whether an origin is on this machine.
func loopback(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	name := strings.ToLower(u.Hostname())
	ip := net.ParseIP(name)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || ip != nil && ip.IsLoopback()
}
