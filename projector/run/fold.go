package run

import (
	"context"
	"errors"

	"runlog/storage"
)

// foldAtOnce is how many events are folded between two looks at the context.
const foldAtOnce = 4096

// Change is what a piece of the log does to a run. Projections that follow runs fold changes.
type Change struct {
	Run *storage.Run
	// Before is the status that the projections have of the run; 0: they do not have the run.
	Before Status
	// Now is the run's snapshot.
	Now *Snapshot
	// Unsure: Before may be wrong, and some of the run's rows may be missing or of another status.
	Unsure bool
	// Behind: the projection is behind the others and is catching up. Before is not set: the
	// projection looks into its own tables.
	Behind bool
}

// Filter selects runs. Empty fields mean any.
type Filter struct {
	TenantID, ProjectID, EnvironmentID, PlanID string
	Status                                     Status // 0: any
	CreatedAfter                               int64  // nanoseconds, exclusive; 0: any
	CreatedBefore                              int64  // nanoseconds, exclusive; 0: any
}

// Listed is a run in a list of runs.
type Listed struct {
	RunID  string
	Status Status
}

// Names reports whether a run has the scope and the plan of the filter, whatever its status.
func (f *Filter) Names(run *storage.Run) bool {
	for _, part := range [...][2]string{
		{f.TenantID, run.Scope.TenantID}, {f.ProjectID, run.Scope.ProjectID},
		{f.EnvironmentID, run.Scope.EnvironmentID}, {f.PlanID, run.PlanID},
	} {
		if part[0] != "" && part[0] != part[1] {
			return false
		}
	}
	return true
}

// Empty returns the snapshot of a run without events.
func Empty(run *storage.Run) *Snapshot {
	return &Snapshot{
		RunID:         run.RunID,
		TenantID:      run.Scope.TenantID,
		ProjectID:     run.Scope.ProjectID,
		EnvironmentID: run.Scope.EnvironmentID,
		PlanID:        run.PlanID,
		PlanVersion:   run.PlanVersion,
		Status:        Pending,
	}
}

// FoldBefore folds the events that the run of a commit had before the commit onto a snapshot.
func FoldBefore(store *storage.Store, s *Snapshot, c *storage.Commit) (_ *Snapshot, err error) {
	v, err := store.View(c.Run.RunID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return FoldView(context.Background(), v, s, c.Position)
}

// FoldView folds the events of a run at positions before end onto a snapshot.
func FoldView(ctx context.Context, v *storage.View, s *Snapshot, end storage.Position) (*Snapshot, error) {
	return FoldUntil(ctx, v, s, func(r *storage.Record) bool { return r.Position >= end })
}

// FoldUntil folds the events of a run that follow a snapshot, up to the first one that is past the
// end.
func FoldUntil(ctx context.Context, v *storage.View, s *Snapshot, past func(*storage.Record) bool) (*Snapshot, error) {
	if s.LastEventSeq >= v.Run.LastSeq {
		return s, nil
	}
	var batch []storage.Record
	for rec, err := range v.Events(s.LastEventSeq) {
		if err != nil {
			return nil, err
		}
		if past(rec) {
			break
		}
		if batch = append(batch, *rec); len(batch) == foldAtOnce {
			s, batch = ReduceAll(s, batch), batch[:0]
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
	}
	return ReduceAll(s, batch), nil
}
