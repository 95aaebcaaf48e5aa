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
	return FoldShowing(ctx, v, s, past, func(*storage.Record) bool { return false }, nil)
}

// Effect is what one event did to a run.
type Effect struct {
	Record *storage.Record
	// Before and After are the snapshots before and after the event.
	Before, After *Snapshot
	// Invalid is set if the state did not allow the event (PRJ-8).
	Invalid *Inconsistency
}

// FoldShowing is FoldUntil, and shows the effect of each event that is wanted.
func FoldShowing(ctx context.Context, v *storage.View, s *Snapshot, past, wanted func(*storage.Record) bool, show func(Effect)) (*Snapshot, error) {
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
		one := wanted(rec)
		if one || len(batch) == foldAtOnce {
			s, batch = ReduceAll(s, batch), batch[:0]
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		if !one {
			batch = append(batch, *rec)
			continue
		}
		effect := Effect{Record: rec, Before: s}
		s = ReduceReporting(s, []storage.Record{*rec}, func(i Inconsistency) { effect.Invalid = &i })
		effect.After = s
		show(effect)
	}
	return ReduceAll(s, batch), nil
}
