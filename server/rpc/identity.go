package rpc

import "context"

// identityKey is the key, in the context of a request, of the caller's authenticated identity.
type identityKey struct{}

// WithIdentity returns the context of a request by an authenticated identity.
func WithIdentity(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, identityKey{}, name)
}

// IdentityOf returns the authenticated identity of a request's caller. Records keep it as
// appendedBy (SEC-8). Access control puts it into the context; until then, every caller has none.
func IdentityOf(ctx context.Context) string {
	name, _ := ctx.Value(identityKey{}).(string)
	return name
}
