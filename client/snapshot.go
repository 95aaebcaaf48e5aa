package client

import (
	"context"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// GetSnapshot returns the fold of a run's events, never older than req asks for (READ-2). It reads
// all pages of a large snapshot, unless req asks for a page (READ-8).
func (c *Client) GetSnapshot(ctx context.Context, req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
	res, err := call(ctx, c, c.projections.GetSnapshot, req)
	if err != nil || req.GetStepsPageSize() > 0 || req.GetStepsPageToken() != "" {
		return res, err
	}
	if err := c.rest(ctx, res.GetSnapshot(), &res.NextStepsPageToken, req.GetConsistency()); err != nil {
		return nil, err
	}
	return res, nil
}

// ProjectRun folds a run again from its first event and compares the result with the stored
// snapshot. It reads all pages of a large snapshot.
func (c *Client) ProjectRun(ctx context.Context, runID string) (*runlogv1.ProjectRunResponse, error) {
	res, err := call(ctx, c, c.projections.ProjectRun, &runlogv1.ProjectRunRequest{RunId: runID})
	if err != nil {
		return res, err
	}
	if err := c.rest(ctx, res.GetSnapshot(), &res.NextStepsPageToken, runlogv1.Consistency_LINEARIZABLE); err != nil {
		return nil, err
	}
	return res, nil
}

// DiffRun returns what differs between two moments of a run (TR-7). It reads all pages, unless req
// asks for a page.
func (c *Client) DiffRun(ctx context.Context, req *runlogv1.DiffRunRequest) (*runlogv1.DiffRunResponse, error) {
	res, err := call(ctx, c, c.projections.DiffRun, req)
	if err != nil || req.GetPageSize() > 0 || req.GetPageToken() != "" {
		return res, err
	}
	req = proto.CloneOf(req)
	for res.GetNextPageToken() != "" {
		req.PageToken = res.GetNextPageToken()
		page, err := call(ctx, c, c.projections.DiffRun, req)
		if err != nil {
			return nil, err
		}
		res.Steps, res.Attempts = append(res.GetSteps(), page.GetSteps()...), append(res.GetAttempts(), page.GetAttempts()...)
		res.Artifacts, res.Signals = append(res.GetArtifacts(), page.GetArtifacts()...), append(res.GetSignals(), page.GetSignals()...)
		res.PendingSignals = append(res.GetPendingSignals(), page.GetPendingSignals()...)
		res.SettledSignals = append(res.GetSettledSignals(), page.GetSettledSignals()...)
		res.Inconsistencies = append(res.GetInconsistencies(), page.GetInconsistencies()...)
		res.NextPageToken = page.GetNextPageToken()
	}
	return res, nil
}

// ExplainStep returns a page of the events that led to the state of a step (TR-7). Pages yields
// those of all pages.
func (c *Client) ExplainStep(ctx context.Context, req *runlogv1.ExplainStepRequest) (*runlogv1.ExplainStepResponse, error) {
	return call(ctx, c, c.projections.ExplainStep, req)
}

// rest adds the pages after the first one to a snapshot, and empties the token.
func (c *Client) rest(ctx context.Context, s *runlogv1.RunSnapshot, token *string, level runlogv1.Consistency_Level) error {
	for *token != "" {
		res, err := call(ctx, c, c.projections.GetSnapshot, &runlogv1.GetSnapshotRequest{
			RunId: s.GetRunId(), StepsPageToken: *token, Consistency: level,
		})
		if err != nil {
			return err
		}
		addPage(s, res.GetSnapshot())
		*token = res.GetNextStepsPageToken()
	}
	return nil
}

// addPage adds a page to the ones before it. The attempts of a step may continue on the next page.
func addPage(s, page *runlogv1.RunSnapshot) {
	steps := page.GetSteps()
	if last := len(s.GetSteps()) - 1; last >= 0 && len(steps) > 0 && s.Steps[last].GetStepId() == steps[0].GetStepId() {
		s.Steps[last].Attempts = append(s.Steps[last].GetAttempts(), steps[0].GetAttempts()...)
		steps = steps[1:]
	}
	s.Steps = append(s.GetSteps(), steps...)
	s.Signals = append(s.GetSignals(), page.GetSignals()...)
	s.PendingSignals = append(s.GetPendingSignals(), page.GetPendingSignals()...)
	s.Artifacts = append(s.GetArtifacts(), page.GetArtifacts()...)
}
