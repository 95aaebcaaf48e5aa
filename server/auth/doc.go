// Package auth finds the identity of a caller, and what it may do (SEC-1 to SEC-5).
//
//	credentials of a call            Authenticator          Identity
//	Authorization: Bearer rlk_…  ──► token table        ──► name, tenants, roles,
//	Authorization: Bearer eyJ…   ──► OIDC provider          until when it is valid
//	client certificate           ──► subjects
//	none                         ──► local, if allowed
//
// The package decides nothing about methods and requests: server/rpc holds an identity against the
// policy of a method, and each service shows an identity what it may see.
//
// A refused credential is never explained to its owner beyond what a well-behaved client needs:
// that it is missing, expired or not accepted.
package auth
