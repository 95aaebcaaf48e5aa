package runner

import (
	"context"
	"time"

	"runlog/engine/replay"
	runlogv1 "runlog/proto/runlog/v1"
)

// Looks returns what a sweep does at a time, to at most so many runs.
func (r *Runner) Looks(most int) func(ctx context.Context, now time.Time) error {
	w := &sweeper{Runner: r, most: most, seen: map[string]*seenRun{}}
	return w.look
}

// Keeps returns what the runner keeps of a run, with what the log has behind that.
func (r *Runner) Keeps(ctx context.Context, runID string) (*replay.State, error) {
	return r.memory.State(ctx, runID)
}

// Attestation returns the call of the body of an attestation, or the status of its refusal.
func Attestation(body []byte, runID string, step *replay.Step) (req *runlogv1.AttestStepRequest, status int) {
	var in attestation
	err := decodeStrictly(body, &in)
	if err == nil {
		err = in.check()
	}
	if err != nil {
		status, _ = refusal(err)
		return nil, status
	}
	return in.request(runID, step), 0
}
