package client

import (
	"context"

	runlogv1 "runlog/proto/runlog/v1"
)

// CreateRun makes a run with its metadata and its first events, all or nothing (APP-12). The same
// call again answers created=false. An event without an eventId gets one, as in AppendEvents.
//
// After an unknown outcome, mode EXCLUSIVE cannot tell the caller's own run from another's: the
// error is then OUTCOME_UNKNOWN.
func (c *Client) CreateRun(ctx context.Context, req *runlogv1.CreateRunRequest) (*runlogv1.CreateRunResponse, error) {
	if err := nameEvents(req.GetEvents()); err != nil {
		return nil, err
	}
	return write(ctx, c, c.runs.CreateRun, req)
}

// UpdateRun changes the labels or the engine's reference of a run (APP-12).
func (c *Client) UpdateRun(ctx context.Context, req *runlogv1.UpdateRunRequest) (*runlogv1.UpdateRunResponse, error) {
	return write(ctx, c, c.runs.UpdateRun, req)
}

// SetEngineRunRef stores the engine's own reference of a run, once (APP-12). The same value again
// changes nothing. LEASE_LOST: the fence of the request is not the run's current one (QUE-8).
func (c *Client) SetEngineRunRef(ctx context.Context, req *runlogv1.SetEngineRunRefRequest) (*runlogv1.SetEngineRunRefResponse, error) {
	return write(ctx, c, c.runs.SetEngineRunRef, req)
}

// VerifyRun makes the server compute the digests of a run again (APP-11).
func (c *Client) VerifyRun(ctx context.Context, runID string) (*runlogv1.VerifyRunResponse, error) {
	return call(ctx, c, c.audit.VerifyRun, &runlogv1.VerifyRunRequest{RunId: runID})
}
