package auth

import (
	"context"
	"slices"
	"strings"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Roles is a set of roles (SEC-2).
type Roles uint32

// RolesOf returns the set of some roles.
func RolesOf(list ...runlogv1.Role_Value) (r Roles) {
	for _, role := range list {
		r |= 1 << role
	}
	return r
}

// AllRoles has every role.
const AllRoles = Roles(1<<runlogv1.Role_PRODUCER | 1<<runlogv1.Role_READER | 1<<runlogv1.Role_OPERATOR |
	1<<runlogv1.Role_AUDITOR | 1<<runlogv1.Role_ADMIN | 1<<runlogv1.Role_ATTESTER | 1<<runlogv1.Role_DECIDER)

// Overlaps reports whether the sets have a role in common.
func (r Roles) Overlaps(other Roles) bool { return r&other != 0 }

// List returns the roles in their order.
func (r Roles) List() (list []runlogv1.Role_Value) {
	for role := range runlogv1.Role_Value(len(runlogv1.Role_Value_name)) {
		if role != 0 && r>>role&1 == 1 {
			list = append(list, role)
		}
	}
	return list
}

// String names the roles in lower case, as configuration and messages have them.
func (r Roles) String() string {
	var names []string
	for _, role := range r.List() {
		names = append(names, strings.ToLower(role.String()))
	}
	return strings.Join(names, ", ")
}

// ParseRole returns the role with a name, in any case; 0: there is none.
func ParseRole(name string) runlogv1.Role_Value {
	return runlogv1.Role_Value(runlogv1.Role_Value_value[strings.ToUpper(name)])
}

// Tenants is a set of tenants. The zero value is the empty set.
type Tenants struct {
	// All: every tenant, also those that come later.
	All bool
	// Names are sorted and without repetition.
	Names []string
}

// AllNames is how configuration and tokens write the set of all identities.
const AllNames = "*"

// AllTenants is how configuration and tokens write the set of all tenants.
const AllTenants = contract.AllTenants

// TenantsOf returns the set of some tenants; AllTenants among them means all. An empty name is no
// tenant: a filter would take it for any.
func TenantsOf(names ...string) Tenants {
	if slices.Contains(names, AllTenants) {
		return Tenants{All: true}
	}
	var some []string
	for _, name := range names {
		if name != "" {
			some = append(some, name)
		}
	}
	slices.Sort(some)
	return Tenants{Names: slices.Compact(some)}
}

// Has reports whether a tenant is in the set.
func (t Tenants) Has(tenant string) bool {
	if t.All {
		return true
	}
	_, found := slices.BinarySearch(t.Names, tenant)
	return found
}

// List returns the names, or AllTenants alone.
func (t Tenants) List() []string {
	if t.All {
		return []string{AllTenants}
	}
	return t.Names
}

// Identity is an authenticated caller (SEC-2). It is never changed.
type Identity struct {
	// Name is unique: its first part says where the identity comes from, as in
	// token:ci or cert:CN=engine.
	Name    string
	Tenants Tenants
	Roles   Roles
	// ActFor are the names of identities in whose names it may attest; AllNames alone: every one.
	ActFor []string
	// Until is when the credential ends; zero: never.
	Until time.Time
	// TokenID is that of the API token; empty for other credentials.
	TokenID string
	// WatchOnly: the identity comes from a ticket, and may open a watch alone.
	WatchOnly bool
	token     TokenHash
}

// Local is the identity of callers on loopback of a node without configuration (SEC-1). It is not
// authenticated: records do not name it.
var Local = &Identity{Name: "local", Tenants: Tenants{All: true}, Roles: AllRoles}

// Authenticated returns the identity for records and logs (SEC-8); the zero value for a caller
// without credentials.
func (i *Identity) Authenticated() contract.Author {
	if i == nil || i == Local {
		return contract.Author{}
	}
	return contract.Author{Name: i.Name, TokenID: i.TokenID}
}

// May reports whether the identity has one of some roles.
func (i *Identity) May(roles Roles) bool { return i != nil && i.Roles.Overlaps(roles) }

// MayActFor reports whether the identity may attest in the name of another (SEC-10).
func (i *Identity) MayActFor(name string) bool {
	return i != nil && (i == Local || name == i.Name || slices.Contains(i.ActFor, name) || slices.Contains(i.ActFor, AllNames))
}

// Sees reports whether a tenant's data exists for the identity (SEC-4).
func (i *Identity) Sees(tenant string) bool { return i != nil && i.Tenants.Has(tenant) }

type identityKey struct{}

// With returns the context of a call by an identity.
func With(ctx context.Context, i *Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// From returns the identity that calls; nil: no caller was authenticated, and nothing is allowed.
func From(ctx context.Context) *Identity {
	i, _ := ctx.Value(identityKey{}).(*Identity)
	return i
}
