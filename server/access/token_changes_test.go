package access_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestChangesByTokensOfOneNameSEC8: whatever names the identity that made or changed it names the
// id of its API token too: tokens, join tokens, limits, and the changes of a run. The token in a
// node's file has no id.
func TestChangesByTokensOfOneNameSEC8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		call := func(token, method, target, body string) (answer map[string]any) {
			t.Helper()
			a := n.HTTP(method, target, body, "Authorization", "Bearer "+token)
			if err := json.Unmarshal(a.Body, &answer); err != nil || a.Code != http.StatusOK {
				t.Fatalf("%s %s: %d %s", method, target, a.Code, a.Body)
			}
			return answer
		}
		by := func(what any, verb string) contract.Author {
			name, _ := what.(map[string]any)[verb+"By"].(string)
			id, _ := what.(map[string]any)[verb+"ByTokenId"].(string)
			return contract.Author{Name: name, TokenID: id}
		}
		lastChange := func(run string) any { return call(root, "GET", run, "")["changes"].([]any)[0] }
		change := func(token, run string, want contract.Author) {
			t.Helper()
			call(token, "POST", "/v1/runs", `{"run": {"runId": "`+run+`", "tenantId": "tenant", "projectId": "p", "environmentId": "e",
				"planRef": {"planId": "plan", "planVersion": "1"}}}`)
			run = "/v1/runs/" + run
			call(token, "POST", run+":setEngineRunRef", `{"engineRunRef": "engine://1"}`)
			got := map[string]contract.Author{"SetEngineRunRef": by(lastChange(run), "changed")}
			call(token, "PATCH", run, `{"labels": {"a": "b"}}`)
			got["UpdateRun"] = by(lastChange(run), "changed")
			call(token, "PUT", "/v1/tenants/tenant/limits", `{"limits": {"streams": "7"}}`)
			got["SetTenantLimits"] = by(call(root, "GET", "/v1/tenants/tenant/limits", ""), "set")
			for tokens, body := range map[string]string{
				"/v1/tokens":             `{"name": "made", "tenants": ["tenant"], "roles": ["READER"]}`,
				"/v1/cluster/joinTokens": `{}`,
			} {
				id := call(token, "POST", tokens, body)["tokenId"].(string)
				made := call(token, "POST", tokens+"/"+id+":revoke", "{}")["token"]
				got["POST "+tokens], got["revoke "+tokens] = by(made, "created"), by(made, "revoked")
			}
			for what, author := range got {
				if author != want {
					t.Errorf("%s is recorded as by %+v, want %+v", what, author, want)
				}
			}
		}
		for _, run := range []string{"first", "second"} {
			made, err := n.Access().CreateToken(n.Bearing(root), &runlogv1.CreateTokenRequest{
				Name: "ci", Tenants: []string{"*"}, Roles: []runlogv1.Role_Value{runlogv1.Role_ADMIN, runlogv1.Role_PRODUCER},
			})
			if err != nil {
				t.Fatal(err)
			}
			change(made.Token, run, contract.Author{Name: "token:ci", TokenID: made.TokenId})
			if _, err := n.Access().RevokeToken(n.Bearing(root), &runlogv1.RevokeTokenRequest{TokenId: made.TokenId}); err != nil {
				t.Fatal(err)
			}
		}
		change(root, "third", contract.Author{Name: "token:admin-token-file"})
	})
}
