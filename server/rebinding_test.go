package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestForeignNamesSEC1: a node on loopback whose callers need no credentials does not answer a web
// page whose site means 127.0.0.1 now (DNS rebinding).
func TestForeignNamesSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		open := servertest.Start(t, func(o *server.Options) { o.HTTPAdvertise = "runlog.test:80" })
		held := servertest.Start(t, func(o *server.Options) { servertest.Secured(o) })
		get := func(address, path, host string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if host != "" {
				req.Host = host
			}
			resp, err := open.HTTPClient().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(body)
		}
		http, admin := open.Server.Addresses().HTTP, open.Server.Addresses().Admin
		for _, host := range []string{"", "localhost", "LOCALHOST:7411", "localhost.", "ui.localhost:1", "127.0.0.1:9", "[::1]:7411", "[::1]", "192.0.2.7", "runlog.test"} {
			if code, body := get(http, "/v1/runs", host); code != 200 {
				t.Errorf("host %q: %d %s", host, code, body)
			}
		}
		for _, host := range []string{"evil.example", "evil.example:7411", "localhost.evil.example", "127.0.0.1.evil.example", "evil-localhost"} {
			for _, at := range [][2]string{{http, "/v1/runs"}, {http, "/openapi.json"}, {admin, "/metrics"}, {admin, "/debug/pprof/cmdline"}} {
				if code, body := get(at[0], at[1], host); code != 403 || !strings.Contains(body, "PERMISSION_DENIED") {
					t.Errorf("host %q, %s: %d %.80s", host, at[1], code, body)
				}
			}
		}
		if code, _ := get(held.Server.Addresses().Admin, "/metrics", "evil.example"); code != 403 {
			t.Errorf("the admin listener of a node with credentials: %d", code)
		}
		if code, _ := get(held.Server.Addresses().HTTP, "/v1/runs", "proxy.example"); code != 401 {
			t.Errorf("a node with credentials, by any name: %d", code)
		}
	})
}
