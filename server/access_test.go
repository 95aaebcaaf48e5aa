package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/testbed/bubble"
)

// secured makes a node demand authentication. It returns a token with every right, for that node.
func secured(o *Options) (root string) {
	root, hash := auth.NewToken()
	o.Authenticate, o.AdminToken = true, hash
	o.CheckpointInterval = time.Hour // It makes keys by itself.
	return root
}

// bearing returns the context of a call with a token.
func (n *node) bearing(token string) context.Context {
	return metadata.AppendToOutgoingContext(n.context(), "authorization", "Bearer "+token)
}

func (n *node) access() runlogv1.AccessServiceClient { return runlogv1.NewAccessServiceClient(n.conn) }

// token makes a token over gRPC.
func (n *node) token(root, name string, tenants []string, roles ...runlogv1.Role_Value) string {
	n.t.Helper()
	resp, err := n.access().CreateToken(n.bearing(root), &runlogv1.CreateTokenRequest{Name: name, Tenants: tenants, Roles: roles})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.Token
}

// TestTokensSEC2: a token lets its owner in over gRPC and HTTP, as the identity that records keep
// (SEC-8), until it is revoked or expires. No other caller gets in.
func TestTokensSEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := startNode(t, func(o *Options) { root = secured(o) })
		_, err := n.access().WhoAmI(n.context(), &runlogv1.WhoAmIRequest{})
		refused(t, err, contract.ReasonUnauthenticated)
		n.http("GET", "/v1/whoami", "").refused(t, contract.ReasonUnauthenticated)
		ci := n.token(root, "ci", []string{"acme"}, runlogv1.Role_PRODUCER, runlogv1.Role_READER)
		who, err := n.access().WhoAmI(n.bearing(ci), &runlogv1.WhoAmIRequest{})
		if err != nil || who.Name != "token:ci" || len(who.Tenants) != 1 || who.Tenants[0] != "acme" || len(who.Roles) != 2 {
			t.Errorf("who: %v, %v", who, err)
		}
		n.http("GET", "/v1/whoami", "", "Authorization", "Bearer "+ci).ok(t)
		for name, req := range map[string]*runlogv1.CreateTokenRequest{
			"name":       {Tenants: []string{"a"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER}},
			"tenants":    {Name: "x", Roles: []runlogv1.Role_Value{runlogv1.Role_READER}},
			"roles":      {Name: "x", Tenants: []string{"a"}},
			"roles[0]":   {Name: "x", Tenants: []string{"a"}, Roles: []runlogv1.Role_Value{77}},
			"tenants[1]": {Name: "x", Tenants: []string{"a", "b\n"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER}},
			"expireTime": {Name: "x", Tenants: []string{"a"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER}, ExpireTime: timestamppb.New(time.Now().Add(-time.Second))},
		} {
			_, err := n.access().CreateToken(n.bearing(root), req)
			if r := refused(t, err, contract.ReasonInvalidArgumentField); r.fields[name] == "" {
				t.Errorf("%s: %v", name, r.fields)
			}
		}
		_, err = n.access().CreateToken(n.bearing(ci), &runlogv1.CreateTokenRequest{Name: "x", Tenants: []string{"*"}, Roles: []runlogv1.Role_Value{runlogv1.Role_ADMIN}})
		refused(t, err, contract.ReasonPermissionDenied)
		list, err := n.access().ListTokens(n.bearing(root), &runlogv1.ListTokensRequest{})
		if err != nil || len(list.Tokens) != 1 || list.Tokens[0].Name != "ci" || list.Tokens[0].GetCreatedBy() != "token:admin-token-file" {
			t.Errorf("tokens: %v, %v", list, err)
		}
		if _, err := n.access().RevokeToken(n.bearing(root), &runlogv1.RevokeTokenRequest{TokenId: list.Tokens[0].TokenId}); err != nil {
			t.Fatal(err)
		}
		_, err = n.access().WhoAmI(n.bearing(ci), &runlogv1.WhoAmIRequest{})
		refused(t, err, contract.ReasonUnauthenticated)
	})
}

// TestForeignTenantsSEC4: what belongs to a tenant that the caller does not see gets the same bytes
// as what does not exist, over HTTP, directly and through a follower.
func TestForeignTenantsSEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		bubble.Run(t, "direct", func(t testing.TB) {
			var root string
			n := startNode(t, func(o *Options) { root = secured(o) })
			foreignIsAbsent(t, n, root)
		})
		bubble.Run(t, "forwarded", func(t testing.TB) {
			all, root := securedNodes(t)
			foreignIsAbsent(t, all.followers()[0], root)
		})
	})
}

// securedNodes starts a cluster whose nodes demand authentication, with a token that has every
// right. All nodes can forward calls.
func securedNodes(t testing.TB) (all nodes, root string) {
	t.Helper()
	root, hash := auth.NewToken()
	all = startNodes(t, 3, func(_ int, o *Options) {
		o.Authenticate, o.AdminToken, o.CheckpointInterval = true, hash, time.Hour
	})
	for _, n := range all {
		bubble.Until(t, "the members have a secret", func() bool {
			_, err := n.access().SetTenantLimits(n.bearing(root), &runlogv1.SetTenantLimitsRequest{TenantId: "tenant", Limits: &runlogv1.TenantLimits{}})
			return err == nil
		})
	}
	return all, root
}

// foreignIsAbsent compares the answers to calls about foreign and absent runs and tenants.
func foreignIsAbsent(t testing.TB, n *node, root string) {
	t.Helper()
	roles := []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER, runlogv1.Role_AUDITOR}
	owner, stranger := n.token(root, "owner", []string{"tenant"}, roles...), n.token(root, "stranger", []string{"other"}, roles...)
	as := func(token, method, target, body string) httpAnswer {
		return n.http(method, target, body, "Authorization", "Bearer "+token)
	}
	as(owner, "POST", "/v1/runs/secret/events:append", `{"events":[`+httpEvent("a")+`]}`).ok(t)
	as(owner, "GET", "/v1/runs/secret", "").ok(t)
	foreign := strings.ReplaceAll(httpEvent("b"), `"tenantId":"tenant"`, `"tenantId":"other"`)
	for what, c := range map[string][3]string{
		"GetRun":          {"GET", "/v1/runs/RUN", ""},
		"GetRun, local":   {"GET", "/v1/runs/RUN?consistency=LOCAL", ""},
		"ListEvents":      {"GET", "/v1/runs/RUN/events", ""},
		"ReadEvents":      {"GET", "/v1/runs/RUN/events:read", ""},
		"GetSnapshot":     {"GET", "/v1/runs/RUN/snapshot", ""},
		"as of":           {"GET", "/v1/runs/RUN/snapshot?asOfSeq=1", ""},
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
		if is.code != absent.code || string(is.body) != strings.ReplaceAll(string(absent.body), "absent", "secret") {
			t.Errorf("%s: a foreign run gets %d %s\nan absent one %d %s", what, is.code, is.body, absent.code, absent.body)
		}
		if strings.Contains(string(is.body), "tenant\"") {
			t.Errorf("%s tells of the tenant: %s", what, is.body)
		}
	}
	for _, target := range []string{"/v1/runs", "/v1/runs?tenantId=tenant", "/v1/runs?runIdPrefix=sec"} {
		if runs := as(stranger, "GET", target, "").ok(t)["runs"].([]any); len(runs) > 0 {
			t.Errorf("%s: %v", target, runs)
		}
	}
	const window = "&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z"
	for _, target := range []string{"/v1/audit/events?tenantId=TENANT" + window, "/v1/audit/events:export?tenantId=TENANT" + window} {
		is, absent := as(stranger, "GET", strings.ReplaceAll(target, "TENANT", "tenant"), ""), as(stranger, "GET", strings.ReplaceAll(target, "TENANT", "absent"), "")
		is.refused(t, contract.ReasonPermissionDenied)
		if is.code != absent.code || string(is.body) != strings.ReplaceAll(string(absent.body), "absent", "tenant") {
			t.Errorf("%s: a foreign tenant gets %d %s\nan absent one %d %s", target, is.code, is.body, absent.code, absent.body)
		}
	}
	as(stranger, "GET", "/v1/audit/events?types=StepStarted,NeverSeen"+window, "").ok(t)
	if runs := as(owner, "GET", "/v1/runs", "").ok(t)["runs"].([]any); len(runs) != 1 {
		t.Errorf("the owner sees %v", runs)
	}
	as(stranger, "POST", "/v1/runs/secret/events:append", `{"events":[`+foreign+`]}`).refused(t, contract.ReasonRunNotFound)
	as(stranger, "POST", "/v1/runs/secret/events:append", `{"events":[`+httpEvent("c")+`]}`).refused(t, contract.ReasonPermissionDenied)
	as(stranger, "POST", "/v1/runs/mine/events:append", `{"events":[`+httpEvent("c")+`]}`).refused(t, contract.ReasonPermissionDenied)
	as(stranger, "GET", "/v1/cluster", "").refused(t, contract.ReasonPermissionDenied)
	if got := as(owner, "GET", "/v1/runs/secret/events", "").ok(t)["lastSeq"]; got != "1" {
		t.Errorf("the run is at %v", got)
	}
}

// TestForwardedIdentitySEC3: a call that a member forwards has the identity of its caller, in unary
// calls, batches and streams; the records name it, and the leader holds it against the tenants.
func TestForwardedIdentitySEC3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all, root := securedNodes(t)
		n := all.followers()[0]
		roles := []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER}
		owner := n.token(root, "owner", []string{"tenant"}, roles...)
		stranger := n.token(root, "stranger", []string{"other"}, roles...)
		if _, err := n.events.AppendEvents(n.bearing(owner), &runlogv1.AppendEventsRequest{RunId: "run", Events: steps("a", 1)}); err != nil {
			t.Fatal(err)
		}
		batch := &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{{RunId: "run", Events: steps("b", 1)}}}
		if resp, err := n.events.BatchAppend(n.bearing(owner), batch); err != nil || resp.Outcomes[0].Status.GetCode() != 0 {
			t.Errorf("batch: %v, %v", resp, err)
		}
		resp, err := n.events.BatchAppend(n.bearing(stranger), batch)
		if err != nil || codes.Code(resp.Outcomes[0].Status.GetCode()) != codes.PermissionDenied {
			t.Errorf("a stranger's batch: %v, %v", resp, err)
		}
		stream, err := n.events.AppendStream(n.bearing(owner))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "run", Events: steps("c", 1)}); err != nil {
			t.Fatal(err)
		}
		if resp, err := stream.Recv(); err != nil || resp.Status.GetCode() != 0 {
			t.Errorf("stream: %v, %v", resp, err)
		}
		list, err := n.events.ListEvents(n.bearing(owner), &runlogv1.ListEventsRequest{RunId: "run"})
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
