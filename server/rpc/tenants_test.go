package rpc

import (
	"testing"

	"runlog/server/auth"
)

// TestShownTenantsSEC4: the filter of a caller without tenants, or with one that has no name, shows
// nothing. An empty filter would show all.
func TestShownTenantsSEC4(t *testing.T) {
	t.Parallel()
	for _, i := range []*auth.Identity{nil, {}, {Tenants: auth.Tenants{Names: []string{""}}}, {Tenants: auth.TenantsOf("")}} {
		for _, asked := range []string{"", "acme"} {
			if tenant, among := ShownTenants(auth.With(t.Context(), i), asked); tenant != noTenant || among != nil {
				t.Errorf("%+v asks for %q: %q, %q", i, asked, tenant, among)
			}
		}
	}
}
