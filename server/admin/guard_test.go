package admin_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/admin"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// get asks for a route at an address; header are names and values.
func get(n *servertest.Node, address, route string, header ...string) (code int, body string) {
	n.T.Helper()
	method, path, found := strings.Cut(route, " ")
	if !found {
		method, path = http.MethodGet, route
	}
	req, err := http.NewRequestWithContext(n.Context(), method, "http://"+address+path, nil)
	if err != nil {
		n.T.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := n.HTTPClient().Do(req)
	if err != nil {
		n.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.T.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestAdminListenerSEC12: with access control, everything on the admin listener but metrics and
// health needs an admin of all tenants, is recorded as a call of the main listener is, and is
// closed to foreign pages. Nothing is said about which routes there are.
func TestAdminListenerSEC12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		at := n.Server.Addresses().Admin
		producer := n.Token(root, "engine", []string{"*"}, runlogv1.Role_PRODUCER, runlogv1.Role_READER, runlogv1.Role_OPERATOR, runlogv1.Role_AUDITOR)
		one := n.Token(root, "one", []string{"bank"}, runlogv1.Role_ADMIN)
		all := n.Token(root, "all", []string{"*"}, runlogv1.Role_ADMIN)
		open := []string{"/healthz", "/readyz", "/metrics"}
		routes := slices.Concat(open, slices.Sorted(maps.Keys(admin.Routes())), []string{"/nothing", "POST /metrics"})
		for _, route := range routes {
			// They sample in real time.
			samples := strings.HasSuffix(route, "/profile") || strings.HasSuffix(route, "/trace")
			free := slices.Contains(open, route)
			for _, c := range []struct {
				who    string
				header []string
				code   int
				reason string
			}{
				{"a caller without credentials", nil, 401, "UNAUTHENTICATED"},
				{"an unknown token", []string{"Authorization", "Bearer " + servertest.FakeToken}, 401, "UNAUTHENTICATED"},
				{"a producer", []string{"Authorization", "Bearer " + producer}, 403, "PERMISSION_DENIED"},
				{"an admin of one tenant", []string{"Authorization", "Bearer " + one}, 403, "PERMISSION_DENIED"},
				{"an admin", []string{"Authorization", "Bearer " + all}, 0, ""},
				{"a foreign page", []string{"Authorization", "Bearer " + all, "Origin", "https://evil.example"}, 403, "PERMISSION_DENIED"},
				{"a page of this machine", []string{"Authorization", "Bearer " + all, "Origin", "http://localhost:5173"}, 403, "PERMISSION_DENIED"},
				{"a file", []string{"Authorization", "Bearer " + all, "Origin", "null"}, 403, "PERMISSION_DENIED"},
				{"a page of its own", []string{"Authorization", "Bearer " + all, "Origin", "http://" + at}, 0, ""},
			} {
				if samples && c.code == 0 {
					continue
				}
				code, body := get(n, at, route, c.header...)
				switch refused := code == http.StatusUnauthorized || code == http.StatusForbidden; {
				case c.code == 0 || free && c.code == 401 || free && !slices.Contains(c.header, "Origin"):
					if refused {
						t.Errorf("%s to %s: %d %.200s", route, c.who, code, body)
					}
				case code != c.code || !strings.Contains(body, c.reason):
					t.Errorf("%s to %s: %d %.200s, want %d %s", route, c.who, code, body, c.code, c.reason)
				}
			}
		}
	})
}

// TestReflectionSEC12: gRPC reflection at the admin listener needs the same credentials.
func TestReflectionSEC12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		conn, err := grpc.NewClient(n.Server.Addresses().Admin, n.Dialer(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		producer := n.Token(root, "engine", []string{"*"}, runlogv1.Role_PRODUCER)
		for token, want := range map[string]codes.Code{"": codes.Unauthenticated, producer: codes.PermissionDenied, root: codes.OK} {
			ctx := n.Context()
			if token != "" {
				ctx = n.Bearing(token)
			}
			stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
			if err == nil {
				_ = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
				_, err = stream.Recv()
			}
			servertest.WantEqual(t, token, status.Code(err), want)
		}
	})
}

// TestMetricsListenerSEC12: metrics and health may have a listener of their own, where nothing else
// is and nothing needs credentials.
func TestMetricsListenerSEC12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) {
			servertest.Secured(o)
			o.MetricsListen = servertest.Loopback + ":0"
		})
		at := n.Server.Addresses().Metrics
		for _, route := range []string{"/healthz", "/readyz", "/metrics"} {
			if code, body := get(n, at, route); code != http.StatusOK || body == "" {
				t.Errorf("%s: %d %.200s", route, code, body)
			}
			if code, body := get(n, at, route, "Origin", "https://evil.example"); code != http.StatusForbidden {
				t.Errorf("%s to a foreign page: %d %.200s", route, code, body)
			}
		}
		for route := range admin.Routes() {
			if code, body := get(n, at, route); code != http.StatusNotFound {
				t.Errorf("%s: %d %.200s", route, code, body)
			}
		}
	})
}

// TestImportIntoTheAccessLogSEC12: nothing imports into the tenant of the access log, not even an
// admin of all tenants, and nothing of such an import is stored.
func TestImportIntoTheAccessLogSEC12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		inTenant := strings.NewReplacer(`"tenantId":"t"`, `"tenantId":"runlog"`)
		inContext := strings.NewReplacer(`"tenantId":"t","projectId":"p","environmentId":"e",`,
			`"contractVersion":"1.1","status":"RUNNING","startedAt":"2024-05-01T10:00:01Z","engineType":"temporal","engineRunRef":"x",`+
				`"planRef":{"planId":"plan","planVersion":"1","uri":"s3://plan","sha256":"00","schemaVersion":"1"},`+
				`"context":{"tenantId":"runlog","projectId":"p","environmentId":"e"},`)
		for name, lines := range map[string][]string{
			"a run of the tenant":   {inTenant.Replace(servertest.Foreign("old", 1, 1, "RunCompleted", ""))},
			"its second record":     {servertest.Foreign("old", 1, 1, "RunStarted", ""), inTenant.Replace(servertest.Foreign("old", 2, 2, "RunCompleted", ""))},
			"by the context of 1.1": {inContext.Replace(servertest.Foreign("old", 1, 1, "RunStarted", ""))},
			"a day of the log":      {inTenant.Replace(servertest.Foreign("runlog.access/2026-01-01", 1, 1, "AccessDecided", ""))},
			"its name":              {servertest.Foreign("runlog.access/2026-01-01", 1, 1, "AccessDecided", "")},
		} {
			before := n.Server.Internals().Replica.Store().Applied().Events
			n.Imports(lines...).Refused(t, contract.ReasonPermissionDenied)
			if after := n.Server.Internals().Replica.Store().Applied().Events; after != before {
				t.Errorf("%s: %d events were stored", name, after-before)
			}
		}
	})
}

// TestImportedDecisionsSEC9: an import of decisions needs the role decider in addition to admin.
func TestImportedDecisionsSEC9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		lines := func(run string) []string {
			return []string{
				servertest.Foreign(run, 1, 1, "RunStarted", ""), servertest.Foreign(run, 2, 2, "StepWaitingForAttestation", `,"stepId":"b"`),
				servertest.Foreign(run, 3, 3, "StepAttested", `,"stepId":"b","payload":{"outcome":"SUCCESS"}`), servertest.Foreign(run, 4, 4, "RunCancelled", ""),
			}
		}
		keeper := n.Token(root, "keeper", []string{"*"}, runlogv1.Role_ADMIN)
		n.ImportsAs(keeper, lines("one")...).Refused(t, contract.ReasonReservedEventType)
		_, err := n.Runs.GetRun(n.Bearing(root), &runlogv1.GetRunRequest{RunId: "one"})
		servertest.Refused(t, err, contract.ReasonRunNotFound)
		n.ImportsAs(n.Token(root, "copier", []string{"*"}, runlogv1.Role_ADMIN, runlogv1.Role_DECIDER), lines("two")...).OK(t)
	})
}
