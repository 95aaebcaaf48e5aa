package access_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	nodev1 "runlog/proto/node/v1"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// attacked starts a node with a run "secret" of the tenant "victim", and returns a token of another
// tenant, and one with every right.
func attacked(t testing.TB) (n *servertest.Node, stranger, root string) {
	t.Helper()
	n = servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
	e := servertest.NewEvent("RunStarted", func(e *runlogv1.EventWrite) { e.TenantId = "victim" })
	if _, err := n.Events.AppendEvents(n.Bearing(root), &runlogv1.AppendEventsRequest{RunId: "secret", Events: []*runlogv1.EventWrite{e}}); err != nil {
		t.Fatal(err)
	}
	roles := []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER, runlogv1.Role_AUDITOR, runlogv1.Role_OPERATOR}
	return n, n.Token(root, "stranger", []string{"other"}, roles...), root
}

// TestAttacksByPathSEC3SEC4 lists request lines with which a caller of another tenant, without the
// role admin, tries to reach tokens and a foreign run. $T is its token. None succeeds, and no
// answer names the tenant.
func TestAttacksByPathSEC3SEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, stranger, root := attacked(t)
		const bearer = "Authorization: Bearer $T\r\n"
		for _, a := range []struct {
			attack, line, head string
			codes              []int // that are an answer
		}{
			{"no trick", "GET /v1/tokens", bearer, []int{403}},
			{"no trick, a run", "GET /v1/runs/secret", bearer, []int{404}},
			{"dots", "GET /v1/runs/../tokens", bearer, []int{301, 307, 404}},
			{"escaped dots", "GET /v1/runs/%2e%2e/tokens", bearer, []int{301, 307, 404}},
			{"escaped dots and slashes", "GET /v1/runs/%2e%2e%2ftokens", bearer, []int{404}},
			{"escaped twice", "GET /v1/runs/%252e%252e%252ftokens", bearer, []int{404}},
			{"escaped twice, with slashes", "GET /v1/runs/%252e%252e/tokens", bearer, []int{404}},
			{"backslashes", `GET /v1/runs\..\tokens`, bearer, []int{400, 404}},
			{"two slashes", "GET //v1/tokens", bearer, []int{301, 307, 404}},
			{"a dot", "GET /v1/./tokens", bearer, []int{301, 307, 404}},
			{"a slash behind", "GET /v1/tokens/", bearer, []int{301, 307, 404}},
			{"a parameter of the path", "GET /v1/tokens;role=admin", bearer, []int{404}},
			{"capitals", "GET /V1/TOKENS", bearer, []int{404}},
			{"a NUL", "GET /v1/tokens%00", bearer, []int{400, 404}},
			{"an escaped letter", "GET /v1/%74okens", bearer, []int{403, 404}},
			{"a whole address", "GET http://127.0.0.1/v1/tokens", bearer, []int{403}},
			{"another method", "POST /v1/tokens", bearer + "X-HTTP-Method-Override: GET\r\nContent-Length: 2\r\n\r\n{}", []int{403, 415}},
			{"the name of a gRPC method", "POST /runlog.v1.AccessService/ListTokens", bearer, []int{404}},
			{"a page of the admin listener", "GET /metrics", bearer, []int{404}},
			{"the profiler", "GET /debug/pprof/heap", bearer, []int{404}},
			{"a run, escaped dots", "GET /v1/runs/x%2f%2e%2e%2fsecret", bearer, []int{404}},
			{"a run, a blank behind", "GET /v1/runs/secret%20", bearer, []int{400}},
			{"a run, a parameter", "GET /v1/runs/secret;tenantId=other", bearer, []int{404}},
			{"a run, a NUL behind", "GET /v1/runs/secret%00", bearer, []int{400}},
			{"a run, a tenant in the query", "GET /v1/runs/secret?tenantId=victim", bearer, []int{400, 404}},
			{"a run, full-width letters", "GET /v1/runs/%EF%BD%93ecret", bearer, []int{404}},
			{"a token in the query", "GET /v1/whoami?access_token=$T", "", []int{400, 401}},
			{"a header in the query", "GET /v1/whoami?authorization=Bearer%20$T", "", []int{400, 401}},
			{"a token as user", "GET http://$T@127.0.0.1/v1/whoami", "", []int{400, 401}},
			{"a cookie", "GET /v1/whoami", "Cookie: token=$T\r\n", []int{401}},
			{"two credentials", "GET /v1/whoami", bearer + bearer, []int{401}},
			{"two credentials, one no text", "GET /v1/whoami", bearer + "Authorization: \xd6\r\n", []int{401}},
			{"a folded header", "GET /v1/whoami", "X-A: b\r\n Authorization: Bearer $T\r\n", []int{400, 401}},
			{"a line break in the path", "GET /v1/whoami%0d%0aAuthorization:%20Bearer%20$T", "", []int{400, 404}},
			{"a second length", "POST /v1/tokens", bearer + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", []int{400}},
			{"a length and chunks", "POST /v1/tokens", bearer + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400, 403, 415}},
		} {
			head, body, _ := strings.Cut(a.head, "\r\n\r\n")
			if head != "" && !strings.HasSuffix(head, "\r\n") {
				head += "\r\n"
			}
			request := a.line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + head + "\r\n" + body
			resp := n.RawHTTP(strings.ReplaceAll(request, "$T", stranger))
			text, err := io.ReadAll(resp.Body)
			if err != nil || !slices.Contains(a.codes, resp.StatusCode) || strings.Contains(string(text), "victim") {
				t.Errorf("%s: HTTP %d, want one of %v: %s, %v", a.attack, resp.StatusCode, a.codes, text, err)
			}
		}
		if got := n.HTTP("GET", "/v1/runs/secret", "", "Authorization", "Bearer "+root); got.Code != http.StatusOK {
			t.Errorf("the run is gone: %d %s", got.Code, got.Body)
		}
	})
}

// TestAttacksByMethodNameSEC3 lists raw HTTP/2 paths at the gRPC port. With every right and without
// any, none calls a method that has no row in the table of access.
func TestAttacksByMethodNameSEC3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, stranger, root := attacked(t)
		for _, path := range []string{
			"/" + nodev1.NodeService_ServiceDesc.ServiceName + "/Describe", "/" + nodev1.NodeService_ServiceDesc.ServiceName + "/FetchSigningKey",
			"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.channelz.v1.Channelz/GetServers",
			"//runlog.v1.AccessService/ListTokens", "/runlog.v1.AccessService//ListTokens", "/runlog.v1.AccessService/ListTokens/",
			"/runlog.v1.RunService/../AccessService/ListTokens", "/runlog.v1.RunService/%2e%2e/AccessService/ListTokens",
			"/runlog.v1.accessservice/ListTokens", "/runlog.v1.AccessService/listtokens", "/runlog.v1.AccessService%2FListTokens",
			"/runlog.v1.AccessService/ListTokens?x=1", "/runlog.v1.AccessService/ListTokens\u200b", "/AccessService/ListTokens", "/", "/x", "*",
		} {
			for _, token := range []string{"", stranger, root} {
				ctx := n.Context()
				if token != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
				}
				err := n.Conn.Invoke(ctx, path, &runlogv1.ListTokensRequest{}, &runlogv1.ListTokensResponse{})
				if code := status.Code(err); code != codes.Unimplemented && code != codes.Unauthenticated && code != codes.Internal {
					t.Errorf("%q: %v", path, err)
				}
			}
		}
		_, err := n.Access().ListTokens(n.Bearing(stranger), &runlogv1.ListTokensRequest{})
		servertest.Refused(t, err, contract.ReasonPermissionDenied)
	})
}

// TestAttacksByNameENV3SEC4 lists names that deceive a reader or break a line. A name with a
// control character is refused. Any other is one of its own, however it looks; and no message
// brings what does not print to a terminal.
func TestAttacksByNameENV3SEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, stranger, _ := attacked(t)
		as := []string{"Authorization", "Bearer " + stranger}
		for attack, c := range map[string]struct {
			name    string
			refused bool
		}{
			"a line break":            {"secret\r\nlevel=ERROR", true},
			"an escape sequence":      {"\x1b[2Jsecret", true},
			"an eight-bit sequence":   {"\u009b2Jsecret", true},
			"a bell":                  {"secret\a", true},
			"a delete":                {"secret\x7f", true},
			"right to left":           {"\u202eterces", false},
			"isolates":                {"\u2066secret\u2069", false},
			"a zero-width space":      {"sec\u200bret", false},
			"a zero-width joiner":     {"sec\u200dret", false},
			"a byte order mark":       {"\ufeffsecret", false},
			"a soft hyphen":           {"sec\u00adret", false},
			"a Cyrillic letter":       {"s\u0435cret", false},
			"a combining mark":        {"secret\u0301", false},
			"tags":                    {"secret\U000e0041", false},
			"a separator of lines":    {"sec\u2028ret", false},
			"a variation selector":    {"secret\ufe0f", false},
			"letters of private use":  {"\ue000secret", false},
			"another form of letters": {"\uff53ecret", false},
		} {
			path := "/v1/runs/" + url.PathEscape(c.name)
			absent := n.HTTP("GET", path, "", as...)
			want := contract.ReasonRunNotFound
			if c.refused {
				want = contract.ReasonInvalidArgumentField
			}
			told := absent.Refused(t, want).Message
			if strings.ContainsFunc(told, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: the message brings it to a terminal: %q", attack, told)
			}
			event := strings.ReplaceAll(servertest.HTTPEvent(fmt.Sprint(len(attack))), `"tenantId":"tenant"`, `"tenantId":"other"`)
			made := n.HTTP("POST", path+"/events:append", `{"events":[`+event+`]}`, as...)
			if c.refused {
				made.Refused(t, contract.ReasonInvalidArgumentField)
				continue
			}
			made.OK(t)
			if got := n.HTTP("GET", path, "", as...).OK(t)["run"].(map[string]any); got["runId"] != c.name || got["tenantId"] != "other" {
				t.Errorf("%s: %v", attack, got)
			}
		}
		n.HTTP("GET", "/v1/runs/secret", "", as...).Refused(t, contract.ReasonRunNotFound)
	})
}
