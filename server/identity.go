package server

import "context"

// identityKey is the key, in the context of a request, of the caller's authenticated identity.
type identityKey struct{}

// identityOf returns the authenticated identity of a request's caller. Records keep it as
// appendedBy (SEC-8). Access control puts it into the context; until then, every caller has none.
func identityOf(ctx context.Context) string {
	name, _ := ctx.Value(identityKey{}).(string)
	return name
}
