package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// Runs lists the runs of the log, as a client.Client does.
type Runs interface {
	ListRuns(context.Context, *runlogv1.ListRunsRequest) iter.Seq2[*runlogv1.Run, error]
}

// Sweeps compares the runs of the log that go on with what an engine knows of them. It is what the
// sweepers of adapters share.
type Sweeps struct {
	Runs Runs
	// Tenant, Project and Environment are those of the runs; the fields from the first empty one on
	// are empty, and mean any.
	Tenant, Project, Environment string
	// Owns reports whether the engine has a run.
	Owns func(run *runlogv1.Run) bool
	// Look looks at a run that the engine has, and notes what it has done.
	Look   func(ctx context.Context, run *runlogv1.Run, swept *Swept) error
	Logger *slog.Logger
}

// Swept is what a sweep has done.
type Swept struct {
	// Ended are the runs that got their terminal event, and Restarted those that the engine had
	// lost, and that were started again.
	Ended, Restarted []string
	// Looked counts the runs that go on.
	Looked int
}

// OpenStatuses returns the statuses of runs that go on.
func OpenStatuses() []runlogv1.RunStatus_Value {
	return []runlogv1.RunStatus_Value{runlogv1.RunStatus_PENDING, runlogv1.RunStatus_APPROVED, runlogv1.RunStatus_RUNNING,
		runlogv1.RunStatus_PAUSED, runlogv1.RunStatus_WAITING}
}

// Sweep looks at each run of the engine that goes on, once. One run that cannot be looked at does
// not hide the others: its error is joined to those of others.
func (s *Sweeps) Sweep(ctx context.Context) (swept Swept, err error) {
	req := &runlogv1.ListRunsRequest{TenantId: s.Tenant, ProjectId: s.Project, EnvironmentId: s.Environment, Status: OpenStatuses()}
	var faults []error
	for run, err := range s.Runs.ListRuns(ctx, req) {
		if err != nil {
			return swept, errors.Join(append(faults, err)...)
		}
		if !s.Owns(run) {
			continue
		}
		swept.Looked++
		if err := s.Look(ctx, run, &swept); err != nil {
			faults = append(faults, fmt.Errorf("engine: cannot sweep run %q: %w", run.GetRunId(), err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return swept, errors.Join(faults...)
}

// Run sweeps at intervals until ctx ends.
func (s *Sweeps) Run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		swept, err := s.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "cannot sweep all runs; retrying", "wait", every, "err", err)
		}
		if len(swept.Ended)+len(swept.Restarted) > 0 {
			s.Logger.WarnContext(ctx, "the engine had ended or lost runs", "ended", swept.Ended, "restarted", swept.Restarted)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
