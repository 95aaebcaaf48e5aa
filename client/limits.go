package client

import (
	"context"

	runlogv1 "runlog/proto/runlog/v1"
)

// GetTenantLimits returns what a tenant may use; "*": the default of the cluster.
func (c *Client) GetTenantLimits(ctx context.Context, tenant string) (*runlogv1.GetTenantLimitsResponse, error) {
	return call(ctx, c, c.access.GetTenantLimits, &runlogv1.GetTenantLimitsRequest{TenantId: tenant})
}

// SetTenantLimits replaces the limits of a tenant; "*": the default of the cluster.
func (c *Client) SetTenantLimits(ctx context.Context, tenant string, limits *runlogv1.TenantLimits) (*runlogv1.SetTenantLimitsResponse, error) {
	return write(ctx, c, c.access.SetTenantLimits, &runlogv1.SetTenantLimitsRequest{TenantId: tenant, Limits: limits})
}
