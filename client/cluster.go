package client

import (
	"context"

	runlogv1 "runlog/proto/runlog/v1"
)

// GetStatus returns the members of the cluster and their states.
func (c *Client) GetStatus(ctx context.Context) (*runlogv1.GetStatusResponse, error) {
	return call(ctx, c, c.cluster.GetStatus, &runlogv1.GetStatusRequest{})
}

// AddMember invites the node that listens for other nodes at req.RaftAddress. A retry after an
// unknown outcome may find the node a member: MEMBER_EXISTS.
func (c *Client) AddMember(ctx context.Context, req *runlogv1.AddMemberRequest) (*runlogv1.AddMemberResponse, error) {
	return write(ctx, c, c.cluster.AddMember, req)
}

// RemoveMember removes a member from the cluster permanently. A retry after an unknown outcome may
// find the member gone: MEMBER_NOT_FOUND.
func (c *Client) RemoveMember(ctx context.Context, req *runlogv1.RemoveMemberRequest) error {
	_, err := write(ctx, c, c.cluster.RemoveMember, req)
	return err
}

// TransferLeadership makes another voter the leader.
func (c *Client) TransferLeadership(ctx context.Context, req *runlogv1.TransferLeadershipRequest) (*runlogv1.TransferLeadershipResponse, error) {
	return write(ctx, c, c.cluster.TransferLeadership, req)
}

// ReleaseHold lets a cluster that was restored lease runs and deliver events.
func (c *Client) ReleaseHold(ctx context.Context) (*runlogv1.ReleaseHoldResponse, error) {
	return write(ctx, c, c.cluster.ReleaseHold, &runlogv1.ReleaseHoldRequest{})
}

// CreateJoinToken makes a join token. Its text is in the answer alone. A retry after an unknown
// outcome may leave a token whose text is lost; revoke that token then.
func (c *Client) CreateJoinToken(ctx context.Context, req *runlogv1.CreateJoinTokenRequest) (*runlogv1.CreateJoinTokenResponse, error) {
	return write(ctx, c, c.cluster.CreateJoinToken, req)
}

// ListJoinTokens returns the join tokens, without their texts.
func (c *Client) ListJoinTokens(ctx context.Context) (*runlogv1.ListJoinTokensResponse, error) {
	return call(ctx, c, c.cluster.ListJoinTokens, &runlogv1.ListJoinTokensRequest{})
}

// RevokeJoinToken ends a join token forever.
func (c *Client) RevokeJoinToken(ctx context.Context, tokenID string) (*runlogv1.RevokeJoinTokenResponse, error) {
	return write(ctx, c, c.cluster.RevokeJoinToken, &runlogv1.RevokeJoinTokenRequest{TokenId: tokenID})
}
