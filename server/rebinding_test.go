package server_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
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

// TestForeignPagesSEC12: no listener answers the page of another site, which a browser names in
// Origin, also if it sends what needs no preflight request.
func TestForeignPagesSEC12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		at := n.Server.Addresses()
		send := func(address, method, path string, header ...string) int {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			resp, err := n.HTTPClient().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		for _, r := range [][3]string{
			{at.HTTP, "GET", "/v1/runs"}, {at.HTTP, "GET", "/healthz"}, {at.HTTP, "POST", servertest.AppendRoute},
			{at.Admin, "POST", "/projection/rebuild"}, {at.Admin, "GET", "/debug/pprof/cmdline"}, {at.Admin, "GET", "/metrics"},
		} {
			for _, origin := range []string{"https://evil.example", "null", "%", "http://" + r[0] + ".evil.example"} {
				if code := send(r[0], r[1], r[2], "Origin", origin); code != http.StatusForbidden {
					t.Errorf("%s %s of %s: %d", r[1], r[2], origin, code)
				}
			}
			// An image has no Origin.
			for _, site := range []string{"cross-site", "same-site"} {
				if code := send(r[0], r[1], r[2], "Sec-Fetch-Site", site, "Sec-Fetch-Dest", "image"); code != http.StatusForbidden {
					t.Errorf("%s %s for a page of %s: %d", r[1], r[2], site, code)
				}
			}
			for _, own := range [][]string{{}, {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document"}, {"Sec-Fetch-Site", "none"}, {"Origin", "http://" + r[0]}, {"Origin", "https://ui.example", "Sec-Fetch-Site", "same-origin"}} {
				if code := send(r[0], r[1], r[2], own...); code == http.StatusForbidden {
					t.Errorf("%s %s with %q: %d", r[1], r[2], own, code)
				}
			}
		}
		page := func(origin string) context.Context {
			return metadata.AppendToOutgoingContext(n.Context(), "origin", origin)
		}
		for name, call := range map[string]func(context.Context) error{
			"ListRuns": func(ctx context.Context) error {
				_, err := n.Runs.ListRuns(ctx, &runlogv1.ListRunsRequest{})
				return err
			},
			"ReadEvents": func(ctx context.Context) error {
				stream, err := n.Events.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: "run"})
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			},
			"Check": func(ctx context.Context) error {
				_, err := grpc_health_v1.NewHealthClient(n.Conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
				return err
			},
		} {
			if err := call(page("https://evil.example")); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "evil.example") {
				t.Errorf("%s of a foreign page: %v", name, err)
			}
			if err := call(page("http://localhost:5173")); status.Code(err) == codes.PermissionDenied {
				t.Errorf("%s of a page of this machine: %v", name, err)
			}
		}
	})
}
