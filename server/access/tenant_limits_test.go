package access_test

import (
	"strings"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestTenantLimitsSEC6: an admin of all tenants sets limits, and readers and operators of a tenant
// see them. Another tenant's limits look like those of a tenant that does not exist.
func TestTenantLimitsSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		reader := n.Token(root, "reader", []string{"acme"}, runlogv1.Role_READER)
		producer := n.Token(root, "producer", []string{"acme"}, runlogv1.Role_PRODUCER)
		admin := n.Token(root, "some", []string{"acme"}, runlogv1.Role_ADMIN)
		as := func(token, method, tenant, body string) servertest.HTTPAnswer {
			return n.HTTP(method, "/v1/tenants/"+tenant+"/limits", body, "Authorization", "Bearer "+token)
		}
		const limits = `{"limits":{"eventsPerSecond":"100","streams":"3"}}`
		as(root, "PUT", "*", `{"limits":{"eventsPerSecond":"7","bytesPerSecond":"8"}}`).OK(t)
		as(root, "PUT", "acme", limits).OK(t)
		got := as(reader, "GET", "acme", "").OK(t)
		own, effective := got["limits"].(map[string]any), got["effective"].(map[string]any)
		if own["eventsPerSecond"] != "100" || own["bytesPerSecond"] != "0" || effective["eventsPerSecond"] != "100" ||
			effective["bytesPerSecond"] != "8" || effective["streams"] != "3" || got["setBy"] != "token:admin-token-file" || got["setTime"] == nil {
			t.Errorf("limits: %v", got)
		}
		if got := as(root, "GET", "other", "").OK(t)["effective"].(map[string]any); got["eventsPerSecond"] != "7" {
			t.Errorf("limits of a tenant that has none: %v", got)
		}
		if got := as(root, "PUT", "acme", `{"limits":{}}`).OK(t)["effective"].(map[string]any); got["eventsPerSecond"] != "7" {
			t.Errorf("limits that were taken back: %v", got)
		}
		as(root, "PUT", "other", limits).OK(t)
		foreign, absent := as(reader, "GET", "other", ""), as(reader, "GET", "never", "")
		foreign.Refused(t, contract.ReasonPermissionDenied)
		if string(foreign.Body) != strings.ReplaceAll(string(absent.Body), "never", "other") {
			t.Errorf("a foreign tenant gets %s\nan absent one %s", foreign.Body, absent.Body)
		}
		as(reader, "GET", "*", "").Refused(t, contract.ReasonPermissionDenied)
		as(producer, "GET", "acme", "").Refused(t, contract.ReasonPermissionDenied)
		as(reader, "PUT", "acme", limits).Refused(t, contract.ReasonPermissionDenied)
		as(admin, "PUT", "acme", limits).Refused(t, contract.ReasonPermissionDenied)
		as(root, "PUT", "acme", `{}`).Refused(t, contract.ReasonInvalidArgumentField)
		as(root, "PUT", "a%00b", limits).Refused(t, contract.ReasonInvalidArgumentField)
		as(root, "PUT", "acme", `{"limits":{"eventsPerSecond":-1}}`).Refused(t, contract.ReasonInvalidArgumentField)
	})
}

// TestSelfAttestationIsSetSEC10: an admin allows or forbids a tenant that identities attest the
// steps of their own runs, also where the default of the cluster says otherwise, and unsets it.
func TestSelfAttestationIsSetSEC10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		put := func(tenant, body string) servertest.HTTPAnswer {
			return n.HTTP("PUT", "/v1/tenants/"+tenant+"/limits", body, "Authorization", "Bearer "+root)
		}
		for _, c := range []struct{ tenant, set, own, effective string }{
			{"acme", `{}`, "VALUE_UNSPECIFIED", "FORBIDDEN"},
			{"*", `{"selfAttestation":"ALLOWED"}`, "ALLOWED", "ALLOWED"},
			{"acme", `{}`, "VALUE_UNSPECIFIED", "ALLOWED"},
			{"acme", `{"selfAttestation":"FORBIDDEN"}`, "FORBIDDEN", "FORBIDDEN"},
			{"acme", `{"eventsPerSecond":"1"}`, "VALUE_UNSPECIFIED", "ALLOWED"},
		} {
			got := put(c.tenant, `{"limits":`+c.set+`}`).OK(t)
			own, effective := got["limits"].(map[string]any), got["effective"].(map[string]any)
			if own["selfAttestation"] != c.own || effective["selfAttestation"] != c.effective {
				t.Errorf("%s of %s: %v", c.set, c.tenant, got)
			}
		}
		for _, unknown := range []string{"true", `"MAYBE"`, "3", "-1"} {
			put("acme", `{"limits":{"selfAttestation":`+unknown+`}}`).Refused(t, contract.ReasonInvalidArgumentField)
		}
	})
}
