package client

import (
	"context"

	runlogv1 "runlog/proto/runlog/v1"
)

// WhoAmI returns the identity that the server takes this client for.
func (c *Client) WhoAmI(ctx context.Context) (*runlogv1.WhoAmIResponse, error) {
	return call(ctx, c, c.access.WhoAmI, &runlogv1.WhoAmIRequest{})
}

// CreateToken makes an API token. Its text is in the answer alone. A retry after an unknown outcome
// may find the name taken; revoke that token then.
func (c *Client) CreateToken(ctx context.Context, req *runlogv1.CreateTokenRequest) (*runlogv1.CreateTokenResponse, error) {
	return write(ctx, c, c.access.CreateToken, req)
}

// ListTokens returns one page of the tokens, without their texts; Pages yields them all.
func (c *Client) ListTokens(ctx context.Context, req *runlogv1.ListTokensRequest) (*runlogv1.ListTokensResponse, error) {
	return call(ctx, c, c.access.ListTokens, req)
}

// RevokeToken ends a token forever.
func (c *Client) RevokeToken(ctx context.Context, tokenID string) (*runlogv1.RevokeTokenResponse, error) {
	return write(ctx, c, c.access.RevokeToken, &runlogv1.RevokeTokenRequest{TokenId: tokenID})
}

// CreateWatchTicket returns a ticket that opens one watch over HTTP, once, within 60 s, at the node
// that gave it: the EventSource of a browser cannot send credentials.
func (c *Client) CreateWatchTicket(ctx context.Context) (*runlogv1.CreateWatchTicketResponse, error) {
	return call(ctx, c, c.access.CreateWatchTicket, &runlogv1.CreateWatchTicketRequest{})
}

// GetTenantLimits returns what a tenant may use; "*": the default of the cluster.
func (c *Client) GetTenantLimits(ctx context.Context, tenant string) (*runlogv1.GetTenantLimitsResponse, error) {
	return call(ctx, c, c.access.GetTenantLimits, &runlogv1.GetTenantLimitsRequest{TenantId: tenant})
}

// SetTenantLimits replaces the limits of a tenant; "*": the default of the cluster.
func (c *Client) SetTenantLimits(ctx context.Context, tenant string, limits *runlogv1.TenantLimits) (*runlogv1.SetTenantLimitsResponse, error) {
	return write(ctx, c, c.access.SetTenantLimits, &runlogv1.SetTenantLimitsRequest{TenantId: tenant, Limits: limits})
}
