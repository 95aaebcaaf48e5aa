package runner

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/engine/replay"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// sweepEvery is how often the runner looks at the runs that wait.
	sweepEvery = time.Minute
	// sweepRuns bounds the runs that are looked at each time. The next time goes on behind them.
	sweepRuns = 10_000
	// sweepSeen bounds the runs that are remembered. Others are read each time.
	sweepSeen = 100_000
	sweepPage = 1000
)

// sweep looks at the runs that wait until ctx ends. It raises ATTESTATION_OVERDUE for steps that
// wait longer than their contracts say, and ends nothing (ATT-7). It finds signals that were
// accepted while no runner was there.
func (r *Runner) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	w := &sweeper{Runner: r, most: sweepRuns, seen: map[string]*seenRun{}}
	for {
		if err := w.look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			r.o.Logger.WarnContext(ctx, "cannot look at the runs that wait; retrying", "after", sweepEvery, "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sweeper remembers what it has seen of the runs that wait. It reads the events of a run again only
// if there are new ones.
type sweeper struct {
	*Runner
	most int
	// from is where the next look begins. nil: at the oldest run.
	from *timestamppb.Timestamp
	// pass counts the passes over all runs.
	pass int
	seen map[string]*seenRun
}

type seenRun struct {
	pass int
	seq  uint64 // of the last event that was read; 0: read it again
	// step waits since a time, and is overdue at due. due is zero: it never is.
	step, stepRun string
	since, due    time.Time
	raised        bool
}

// look logs each overdue step once, and when it is not overdue any more. It counts those that are.
func (w *sweeper) look(ctx context.Context, now time.Time) error {
	defer w.count()
	req := &runlogv1.ListRunsRequest{
		TenantId: w.o.Tenant, ProjectId: w.o.Project, EnvironmentId: w.o.Environment, OrderBy: "oldest", PageSize: sweepPage,
		Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_WAITING, runlogv1.RunStatus_PAUSED}, CreatedAfter: w.from,
	}
	n, last := 0, time.Time{}
	for run, err := range w.o.Client.ListRuns(ctx, req) {
		if err != nil {
			return err
		}
		if n++; n > w.most {
			w.from = timestamppb.New(last.Add(-1)) // Other runs may have the same time.
			return nil
		}
		last = run.GetCreatedAt().AsTime()
		if run.GetEngineType() != EngineType {
			continue
		}
		err := w.lookAt(ctx, run, now)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // One run must not hide the others.
			w.o.Logger.WarnContext(ctx, "cannot look at a run that waits; retrying", "run", run.GetRunId(), "after", sweepEvery, "err", err)
		}
	}
	for id, s := range w.seen {
		if s.pass != w.pass {
			w.lower(ctx, s)
			delete(w.seen, id)
		}
	}
	w.from = nil
	w.pass++
	return nil
}

func (w *sweeper) count() {
	n := 0
	for _, s := range w.seen {
		if s.raised {
			n++
		}
	}
	w.metrics.overdue.Set(float64(n))
}

func (w *sweeper) lookAt(ctx context.Context, run *runlogv1.Run, now time.Time) error {
	id := run.GetRunId()
	s := w.seen[id]
	if s == nil {
		if s = (&seenRun{}); len(w.seen) < sweepSeen {
			w.seen[id] = s
		}
	}
	s.pass = w.pass
	if s.seq == 0 || s.seq != run.GetLastSeq() {
		if err := w.readRun(ctx, run, s); err != nil {
			return err
		}
	}
	if s.due.IsZero() || s.raised || !now.After(s.due) {
		return nil
	}
	s.raised = true
	w.o.Logger.ErrorContext(ctx, "an attestation is overdue", "alert", "ATTESTATION_OVERDUE", "run", id, "step", s.step, "since", s.since)
	return nil
}

func (w *sweeper) readRun(ctx context.Context, run *runlogv1.Run, s *seenRun) error {
	state, err := w.memory.State(ctx, run.GetRunId())
	if err == nil {
		err = w.requeue(ctx, run, state)
	}
	if err != nil {
		return err
	}
	if s.seq = state.LastSeq; state.Unanswered() {
		s.seq = 0 // It needs its place in the queue until a worker answers.
	}
	step := state.WaitingStep()
	stepRun := ""
	if step != nil {
		stepRun = StepRunID(run.GetRunId(), step.ID, step.Attempt)
	}
	if s.stepRun == stepRun {
		return nil
	}
	w.lower(ctx, s)
	s.stepRun, s.due = stepRun, time.Time{}
	if step != nil {
		s.step, s.since, s.due = step.ID, step.StartedAt, due(step)
	}
	return nil
}

// lower logs that a step is not overdue any more.
func (w *sweeper) lower(ctx context.Context, s *seenRun) {
	if s.raised {
		s.raised = false
		w.o.Logger.InfoContext(ctx, "an attestation is not overdue any more", "alert", "ATTESTATION_OVERDUE", "stepRun", s.stepRun)
	}
}

// due is when a step has waited as long as its contract says; zero: the contract does not say.
func due(step *replay.Step) time.Time {
	var p struct {
		Contract struct{ TimeoutMinutes int64 }
	}
	const most = int64(100 * 366 * 24 * time.Hour / time.Minute) // Other writers write any number.
	if json.Unmarshal(step.Waiting, &p) != nil || p.Contract.TimeoutMinutes <= 0 || p.Contract.TimeoutMinutes > most {
		return time.Time{}
	}
	return step.StartedAt.Add(time.Duration(p.Contract.TimeoutMinutes) * time.Minute)
}
