package runner

import (
	"context"
	"errors"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/replay"
	runlogv1 "runlog/proto/runlog/v1"
)

// follow puts a run of this engine back into its queue if a signal waits for the runner's answer,
// and the run does not wait for its operator alone.
func (r *Runner) follow(ctx context.Context, runID string) error {
	run, err := r.o.Client.GetRun(ctx, &runlogv1.GetRunRequest{RunId: runID})
	if err := r.owned(run, err); errors.Is(err, errNoRun) {
		return nil // It is another engine's, or of another scope.
	} else if err != nil {
		return err
	}
	if ended(run.GetStatus()) {
		return nil
	}
	s, err := r.memory.State(ctx, runID)
	if err != nil {
		return err
	}
	return r.requeue(ctx, run, s)
}

// released looks at a run whose lease has ended. A signal that came before was not followed: a
// leased run stays with its worker.
func (r *Runner) released(ctx context.Context, res engine.Result) {
	if res.Status != engine.StatusStarted || ctx.Err() != nil {
		return
	}
	if err := r.follow(ctx, res.RunID); err != nil && ctx.Err() == nil {
		r.o.Logger.WarnContext(ctx, "cannot look at a released run; retrying", "run", res.RunID, "after", sweepEvery, "err", err)
	}
}

// requeue has a worker lease a run that can answer a signal. A run that a worker has leased stays
// as it is: that worker answers.
func (r *Runner) requeue(ctx context.Context, run *runlogv1.Run, s *replay.State) error {
	if !s.Unanswered() {
		return nil
	}
	_, err := r.o.Client.RequeueRun(ctx, &runlogv1.RequeueRunRequest{RunId: run.GetRunId()})
	if e, ok := errors.AsType[*client.Error](err); ok && e.Reason == client.ReasonRunNotQueued {
		return nil // It has ended meanwhile.
	}
	return err
}
