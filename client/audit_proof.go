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

// ProveRecords returns the places of a run's records in the tree of all records, with the proof
// that they are in it: up to 1,000 of them.
func (c *Client) ProveRecords(ctx context.Context, req *runlogv1.ProveRecordsRequest) (*runlogv1.ProveRecordsResponse, error) {
	return call(ctx, c, c.audit.ProveRecords, req)
}

// ProveConsistency returns the proof that the tree of all records at one size begins with that of
// an earlier size.
func (c *Client) ProveConsistency(ctx context.Context, req *runlogv1.ProveConsistencyRequest) (*runlogv1.ProveConsistencyResponse, error) {
	return call(ctx, c, c.audit.ProveConsistency, req)
}

// ListCheckpoints yields signed checkpoints, newest first, page by page. req.PageSize is the size
// of one page. An error ends the iteration.
func (c *Client) ListCheckpoints(ctx context.Context, req *runlogv1.ListCheckpointsRequest) iter.Seq2[*runlogv1.Checkpoint, error] {
	list := func(ctx context.Context, req *runlogv1.ListCheckpointsRequest) (*runlogv1.ListCheckpointsResponse, error) {
		return call(ctx, c, c.audit.ListCheckpoints, req)
	}
	return Pages(ctx, req, list, (*runlogv1.ListCheckpointsResponse).GetCheckpoints)
}

// ReadLog returns a file of the transparency log, such as checkpoint or tile/0/000, in the form of
// C2SP tlog-tiles.
func (c *Client) ReadLog(ctx context.Context, path string) ([]byte, error) {
	res, err := call(ctx, c, c.audit.ReadLog, &runlogv1.ReadLogRequest{Path: path})
	return res.GetData(), err
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
