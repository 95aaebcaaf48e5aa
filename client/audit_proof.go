package client

import (
	"context"
	"iter"

	runlogv1 "runlog/proto/runlog/v1"
)

// ProveRun returns the proof of a run against a signed checkpoint. Package proof verifies it with
// the cluster's key.
func (c *Client) ProveRun(ctx context.Context, req *runlogv1.ProveRunRequest) (*runlogv1.ProveRunResponse, error) {
	return call(ctx, c, c.audit.ProveRun, req)
}

// ListCheckpoints yields signed checkpoints, newest first, page by page. req.PageSize is the size
// of one page. An error ends the iteration.
func (c *Client) ListCheckpoints(ctx context.Context, req *runlogv1.ListCheckpointsRequest) iter.Seq2[*runlogv1.Checkpoint, error] {
	list := func(ctx context.Context, req *runlogv1.ListCheckpointsRequest) (*runlogv1.ListCheckpointsResponse, error) {
		return call(ctx, c, c.audit.ListCheckpoints, req)
	}
	return Pages(ctx, req, list, (*runlogv1.ListCheckpointsResponse).GetCheckpoints)
}

// ListSigningKeys returns the public keys with which the cluster has signed, oldest first.
func (c *Client) ListSigningKeys(ctx context.Context) ([]*runlogv1.SigningKey, error) {
	res, err := call(ctx, c, c.audit.ListSigningKeys, &runlogv1.ListSigningKeysRequest{})
	return res.GetKeys(), err
}

// RotateSigningKey makes a new signing key for the cluster. A retry after an unknown outcome may
// make another one, which is harmless.
func (c *Client) RotateSigningKey(ctx context.Context, req *runlogv1.RotateSigningKeyRequest) (*runlogv1.SigningKey, error) {
	res, err := write(ctx, c, c.audit.RotateSigningKey, req)
	return res.GetKey(), err
}
