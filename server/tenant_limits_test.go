package server

import (
	"strings"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestTenantLimitsSEC6: an admin of all tenants sets limits, and readers and operators of a tenant
// see them. Another tenant's limits look like those of a tenant that does not exist.
func TestTenantLimitsSEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := startNode(t, func(o *Options) { root = secured(o) })
		reader := n.token(root, "reader", []string{"acme"}, runlogv1.Role_READER)
		producer := n.token(root, "producer", []string{"acme"}, runlogv1.Role_PRODUCER)
		admin := n.token(root, "some", []string{"acme"}, runlogv1.Role_ADMIN)
		as := func(token, method, tenant, body string) httpAnswer {
			return n.http(method, "/v1/tenants/"+tenant+"/limits", body, "Authorization", "Bearer "+token)
		}
		const limits = `{"limits":{"eventsPerSecond":"100","streams":"3"}}`
		as(root, "PUT", "*", `{"limits":{"eventsPerSecond":"7","bytesPerSecond":"8"}}`).ok(t)
		as(root, "PUT", "acme", limits).ok(t)
		got := as(reader, "GET", "acme", "").ok(t)
		own, effective := got["limits"].(map[string]any), got["effective"].(map[string]any)
		if own["eventsPerSecond"] != "100" || own["bytesPerSecond"] != "0" || effective["eventsPerSecond"] != "100" ||
			effective["bytesPerSecond"] != "8" || effective["streams"] != "3" || got["setBy"] != "token:admin-token-file" || got["setTime"] == nil {
			t.Errorf("limits: %v", got)
		}
		if got := as(root, "GET", "other", "").ok(t)["effective"].(map[string]any); got["eventsPerSecond"] != "7" {
			t.Errorf("limits of a tenant that has none: %v", got)
		}
		if got := as(root, "PUT", "acme", `{"limits":{}}`).ok(t)["effective"].(map[string]any); got["eventsPerSecond"] != "7" {
			t.Errorf("limits that were taken back: %v", got)
		}
		as(root, "PUT", "other", limits).ok(t)
		foreign, absent := as(reader, "GET", "other", ""), as(reader, "GET", "never", "")
		foreign.refused(t, contract.ReasonPermissionDenied)
		if string(foreign.body) != strings.ReplaceAll(string(absent.body), "never", "other") {
			t.Errorf("a foreign tenant gets %s\nan absent one %s", foreign.body, absent.body)
		}
		as(reader, "GET", "*", "").refused(t, contract.ReasonPermissionDenied)
		as(producer, "GET", "acme", "").refused(t, contract.ReasonPermissionDenied)
		as(reader, "PUT", "acme", limits).refused(t, contract.ReasonPermissionDenied)
		as(admin, "PUT", "acme", limits).refused(t, contract.ReasonPermissionDenied)
		as(root, "PUT", "acme", `{}`).refused(t, contract.ReasonInvalidArgumentField)
		as(root, "PUT", "a%7Cb", limits).refused(t, contract.ReasonInvalidArgumentField)
		as(root, "PUT", "acme", `{"limits":{"eventsPerSecond":-1}}`).refused(t, contract.ReasonInvalidArgumentField)
	})
}
