package access_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestTokensSEC2: a token lets its owner in over gRPC and HTTP, as the identity that records keep
// (SEC-8), until it is revoked or expires. No other caller gets in.
func TestTokensSEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		_, err := n.Access().WhoAmI(n.Context(), &runlogv1.WhoAmIRequest{})
		servertest.Refused(t, err, contract.ReasonUnauthenticated)
		n.HTTP("GET", "/v1/whoami", "").Refused(t, contract.ReasonUnauthenticated)
		ci := n.Token(root, "ci", []string{"acme"}, runlogv1.Role_PRODUCER, runlogv1.Role_READER)
		who, err := n.Access().WhoAmI(n.Bearing(ci), &runlogv1.WhoAmIRequest{})
		if err != nil || who.Name != "token:ci" || len(who.Tenants) != 1 || who.Tenants[0] != "acme" || len(who.Roles) != 2 {
			t.Errorf("who: %v, %v", who, err)
		}
		n.HTTP("GET", "/v1/whoami", "", "Authorization", "Bearer "+ci).OK(t)
		for name, req := range map[string]*runlogv1.CreateTokenRequest{
			"name":       {Tenants: []string{"a"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER}},
			"tenants":    {Name: "x", Roles: []runlogv1.Role_Value{runlogv1.Role_READER}},
			"roles":      {Name: "x", Tenants: []string{"a"}},
			"roles[0]":   {Name: "x", Tenants: []string{"a"}, Roles: []runlogv1.Role_Value{77}},
			"tenants[1]": {Name: "x", Tenants: []string{"a", "b\n"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER}},
			"expireTime": {Name: "x", Tenants: []string{"a"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER}, ExpireTime: timestamppb.New(time.Now().Add(-time.Second))},
		} {
			_, err := n.Access().CreateToken(n.Bearing(root), req)
			if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); r.Fields[name] == "" {
				t.Errorf("%s: %v", name, r.Fields)
			}
		}
		_, err = n.Access().CreateToken(n.Bearing(ci), &runlogv1.CreateTokenRequest{Name: "x", Tenants: []string{"*"}, Roles: []runlogv1.Role_Value{runlogv1.Role_ADMIN}})
		servertest.Refused(t, err, contract.ReasonPermissionDenied)
		list, err := n.Access().ListTokens(n.Bearing(root), &runlogv1.ListTokensRequest{})
		if err != nil || len(list.Tokens) != 1 || list.Tokens[0].Name != "ci" || list.Tokens[0].GetCreatedBy() != "token:admin-token-file" {
			t.Errorf("tokens: %v, %v", list, err)
		}
		if _, err := n.Access().RevokeToken(n.Bearing(root), &runlogv1.RevokeTokenRequest{TokenId: list.Tokens[0].TokenId}); err != nil {
			t.Fatal(err)
		}
		_, err = n.Access().WhoAmI(n.Bearing(ci), &runlogv1.WhoAmIRequest{})
		servertest.Refused(t, err, contract.ReasonUnauthenticated)
	})
}

// TestActForSEC10ENV13: a token names identities in whose names it may attest, each of which some
// credential or some person can have.
func TestActForSEC10ENV13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		create := func(actFor ...string) (*runlogv1.CreateTokenResponse, error) {
			return n.Access().CreateToken(n.Bearing(root), &runlogv1.CreateTokenRequest{
				Name: "clerk", Tenants: []string{"a"}, Roles: []runlogv1.Role_Value{runlogv1.Role_ATTESTER}, ActFor: actFor,
			})
		}
		for _, odd := range []string{
			"", " ", "\t", "token:", "token:a b", "token:a\u200b", "token:*", "token:" + strings.Repeat("a", 65), "jed\n", " jed", "jed\u00a0",
			"\x1b[31mjed", strings.Repeat("a", 257), "*", "local", "token:clerk",
		} {
			_, err := create("oidc:https://login.example.com#auth0|7", odd)
			if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); r.Fields["actFor[1]"] == "" {
				t.Errorf("%q: %v", odd, r.Fields)
			}
		}
		many := []string{}
		for i := range 101 {
			many = append(many, fmt.Sprintf("token:%d", i))
		}
		_, err := create(many...)
		if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); r.Fields["actFor"] == "" {
			t.Error(r.Fields)
		}
		if _, err := create("token:jed", "Jane Doe", "oidc:https://login.example.com#auth0|7", "cert:CN=ann,O=acme", "token:jed"); err != nil {
			t.Error(err)
		}
	})
}

// TestAdminTokenNameSEC8: no stored token has the name of the one in a node's file, with which
// records could not tell it apart.
func TestAdminTokenNameSEC8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		who, err := n.Access().WhoAmI(n.Bearing(root), &runlogv1.WhoAmIRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.Access().CreateToken(n.Bearing(root), &runlogv1.CreateTokenRequest{
			Name: strings.TrimPrefix(who.Name, "token:"), Tenants: []string{"a"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER},
		})
		if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); r.Fields["name"] == "" {
			t.Error(r.Fields)
		}
	})
}

// TestForeignTenantsSEC4: what belongs to a tenant that the caller does not see gets the same bytes
// as what does not exist, over HTTP, directly and through a follower, also as of a moment (TR-7).
func TestForeignTenantsSEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		bubble.Run(t, "direct", func(t testing.TB) {
			var root string
			n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
			foreignIsAbsent(t, n, root)
		})
		bubble.Run(t, "forwarded", func(t testing.TB) {
			all, root := servertest.SecuredNodes(t)
			foreignIsAbsent(t, all.Followers()[0], root)
		})
	})
}

// foreignIsAbsent compares the answers to calls about foreign and absent runs and tenants.
func foreignIsAbsent(t testing.TB, n *servertest.Node, root string) {
	t.Helper()
	roles := []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER, runlogv1.Role_AUDITOR}
	owner, stranger := n.Token(root, "owner", []string{"tenant"}, roles...), n.Token(root, "stranger", []string{"other"}, roles...)
	as := func(token, method, target, body string) servertest.HTTPAnswer {
		return n.HTTP(method, target, body, "Authorization", "Bearer "+token)
	}
	as(owner, "POST", "/v1/runs/secret/events:append", `{"events":[`+servertest.HTTPEvent("a")+`]}`).OK(t)
	as(owner, "GET", "/v1/runs/secret", "").OK(t)
	foreign := strings.ReplaceAll(servertest.HTTPEvent("b"), `"tenantId":"tenant"`, `"tenantId":"other"`)
	for what, c := range map[string][3]string{
		"GetRun":          {"GET", "/v1/runs/RUN", ""},
		"GetRun, local":   {"GET", "/v1/runs/RUN?consistency=LOCAL", ""},
		"ListEvents":      {"GET", "/v1/runs/RUN/events", ""},
		"ReadEvents":      {"GET", "/v1/runs/RUN/events:read", ""},
		"GetSnapshot":     {"GET", "/v1/runs/RUN/snapshot", ""},
		"as of":           {"GET", "/v1/runs/RUN/snapshot?asOfSeq=1", ""},
		"as of a time":    {"GET", "/v1/runs/RUN/snapshot?asOfTime=2026-01-01T00:00:00Z", ""},
		"DiffRun":         {"GET", "/v1/runs/RUN:diff?from=0&to=1", ""},
		"since a time":    {"GET", "/v1/runs/RUN:diff?to=2026-01-01T00:00:00Z", ""},
		"ExplainStep":     {"GET", "/v1/runs/RUN/steps/a:explain", ""},
		"of no step":      {"GET", "/v1/runs/RUN/steps/b:explain?asOfSeq=1", ""},
		"ProjectRun":      {"POST", "/v1/runs/RUN:project", "{}"},
		"WatchRun":        {"GET", "/v1/runs/RUN:watch?mustExist=true", ""},
		"UpdateRun":       {"PATCH", "/v1/runs/RUN", `{"labels":{"a":"b"}}`},
		"SetEngineRunRef": {"POST", "/v1/runs/RUN:setEngineRunRef", `{"engineRunRef":"x:y"}`},
		"VerifyRun":       {"GET", "/v1/audit/runs/RUN:verify", ""},
		"ProveRun":        {"GET", "/v1/audit/runs/RUN:prove", ""},
		"its events":      {"GET", "/v1/audit/events?runId=RUN&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z", ""},
		"sparse append":   {"POST", "/v1/runs/RUN/events:append", `{"events":[` + strings.ReplaceAll(foreign, `"tenantId":"other",`, "") + `]}`},
	} {
		is, absent := as(stranger, c[0], strings.ReplaceAll(c[1], "RUN", "secret"), strings.ReplaceAll(c[2], "RUN", "secret")),
			as(stranger, c[0], strings.ReplaceAll(c[1], "RUN", "absent"), strings.ReplaceAll(c[2], "RUN", "absent"))
		if is.Code != absent.Code || string(is.Body) != strings.ReplaceAll(string(absent.Body), "absent", "secret") {
			t.Errorf("%s: a foreign run gets %d %s\nan absent one %d %s", what, is.Code, is.Body, absent.Code, absent.Body)
		}
		if strings.Contains(string(is.Body), "tenant\"") {
			t.Errorf("%s tells of the tenant: %s", what, is.Body)
		}
	}
	position := as(owner, "GET", "/v1/runs", "").OK(t)["applied"].(map[string]any)["position"].(string)
	for _, target := range []string{"/v1/runs", "/v1/runs?tenantId=tenant", "/v1/runs?runIdPrefix=sec", "/v1/runs?asOfPosition=" + position} {
		if runs := as(stranger, "GET", target, "").OK(t)["runs"].([]any); len(runs) > 0 {
			t.Errorf("%s: %v", target, runs)
		}
	}
	const window = "&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z"
	for _, target := range []string{"/v1/audit/events?tenantId=TENANT" + window, "/v1/audit/events:export?tenantId=TENANT" + window} {
		is, absent := as(stranger, "GET", strings.ReplaceAll(target, "TENANT", "tenant"), ""), as(stranger, "GET", strings.ReplaceAll(target, "TENANT", "absent"), "")
		is.Refused(t, contract.ReasonPermissionDenied)
		if is.Code != absent.Code || string(is.Body) != strings.ReplaceAll(string(absent.Body), "absent", "tenant") {
			t.Errorf("%s: a foreign tenant gets %d %s\nan absent one %d %s", target, is.Code, is.Body, absent.Code, absent.Body)
		}
	}
	as(stranger, "GET", "/v1/audit/events?types=StepStarted,NeverSeen"+window, "").OK(t)
	if runs := as(owner, "GET", "/v1/runs", "").OK(t)["runs"].([]any); len(runs) != 1 {
		t.Errorf("the owner sees %v", runs)
	}
	as(stranger, "POST", "/v1/runs/secret/events:append", `{"events":[`+foreign+`]}`).Refused(t, contract.ReasonRunNotFound)
	as(stranger, "POST", "/v1/runs/secret/events:append", `{"events":[`+servertest.HTTPEvent("c")+`]}`).Refused(t, contract.ReasonPermissionDenied)
	as(stranger, "POST", "/v1/runs/mine/events:append", `{"events":[`+servertest.HTTPEvent("c")+`]}`).Refused(t, contract.ReasonPermissionDenied)
	as(stranger, "GET", "/v1/cluster", "").Refused(t, contract.ReasonPermissionDenied)
	if got := as(owner, "GET", "/v1/runs/secret/events", "").OK(t)["lastSeq"]; got != "1" {
		t.Errorf("the run is at %v", got)
	}
}

// TestForwardedIdentitySEC3: a call that a member forwards has the identity of its caller, in unary
// calls, batches and streams; the records name it, and the leader holds it against the tenants.
func TestForwardedIdentitySEC3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all, root := servertest.SecuredNodes(t)
		n := all.Followers()[0]
		roles := []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER}
		owner := n.Token(root, "owner", []string{"tenant"}, roles...)
		stranger := n.Token(root, "stranger", []string{"other"}, roles...)
		if _, err := n.Events.AppendEvents(n.Bearing(owner), &runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("a", 1)}); err != nil {
			t.Fatal(err)
		}
		batch := &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{{RunId: "run", Events: servertest.Steps("b", 1)}}}
		if resp, err := n.Events.BatchAppend(n.Bearing(owner), batch); err != nil || resp.Outcomes[0].Status.GetCode() != 0 {
			t.Errorf("batch: %v, %v", resp, err)
		}
		resp, err := n.Events.BatchAppend(n.Bearing(stranger), batch)
		if err != nil || codes.Code(resp.Outcomes[0].Status.GetCode()) != codes.PermissionDenied {
			t.Errorf("a stranger's batch: %v, %v", resp, err)
		}
		stream, err := n.Events.AppendStream(n.Bearing(owner))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("c", 1)}); err != nil {
			t.Fatal(err)
		}
		if resp, err := stream.Recv(); err != nil || resp.Status.GetCode() != 0 {
			t.Errorf("stream: %v, %v", resp, err)
		}
		list, err := n.Events.ListEvents(n.Bearing(owner), &runlogv1.ListEventsRequest{RunId: "run"})
		if err != nil || len(list.Events) != 3 {
			t.Fatalf("%v, %v", list, err)
		}
		for _, r := range list.Events {
			if r.GetAppendedBy() != "token:owner" {
				t.Errorf("runSeq %d is appended by %q", r.RunSeq, r.GetAppendedBy())
			}
		}
	})
}
