package run

import (
	"iter"
	"math/bits"
	"slices"
	"strings"
	"time"

	"runlog/storage"
)

// Filter selects runs, and says in which order they are listed. Empty fields mean any.
type Filter struct {
	TenantID, ProjectID, EnvironmentID, PlanID string
	// Tenants are several of which a run has one, without repetition; empty: TenantID counts alone.
	Tenants       []string
	PlanVersion   string
	RunIDPrefix   string
	Statuses      Statuses
	Labels        []Label // all of them
	CreatedAfter  int64   // nanoseconds, exclusive; 0: any
	CreatedBefore int64   // nanoseconds, exclusive; 0: any
	StartedAfter  int64   // nanoseconds, exclusive; 0: any
	StartedBefore int64   // nanoseconds, exclusive; 0: any
	// OldestFirst lists the runs that were created first first.
	OldestFirst bool
}

// Label is one of a run's labels.
type Label struct{ Key, Value string }

// Statuses is a set of statuses. The empty set means any status.
type Statuses uint16

// StatusSet returns the set of some statuses.
func StatusSet(list ...Status) (set Statuses) {
	for _, s := range list {
		set |= 1 << s
	}
	return set
}

// NotOver is the set of the statuses that are not terminal.
const NotOver Statuses = 1<<Completed - 1<<Pending

// Match reports whether a status is in the set, or the set is empty.
func (set Statuses) Match(s Status) bool { return set == 0 || set&(1<<s) != 0 }

// All yields the statuses of the set.
func (set Statuses) All() iter.Seq[Status] {
	return func(yield func(Status) bool) {
		for rest := set; rest != 0; rest &= rest - 1 {
			if !yield(Status(bits.TrailingZeros16(uint16(rest)))) {
				return
			}
		}
	}
}

// Names reports whether a run has the name, the scope and the plan of the filter, whatever its
// status, its labels and its times are.
func (f *Filter) Names(run *storage.Run) bool {
	for _, part := range [...][2]string{
		{f.TenantID, run.Scope.TenantID}, {f.ProjectID, run.Scope.ProjectID},
		{f.EnvironmentID, run.Scope.EnvironmentID}, {f.PlanID, run.PlanID}, {f.PlanVersion, run.PlanVersion},
	} {
		if part[0] != "" && part[0] != part[1] {
			return false
		}
	}
	if len(f.Tenants) > 0 && !slices.Contains(f.Tenants, run.Scope.TenantID) {
		return false
	}
	return strings.HasPrefix(run.RunID, f.RunIDPrefix)
}

// Started reports whether a run that started at a time has the times of the filter. A run that has
// not started has none.
func (f *Filter) Started(at time.Time) bool {
	if f.StartedAfter == 0 && f.StartedBefore == 0 {
		return true
	}
	return !at.IsZero() && (f.StartedAfter == 0 || at.After(time.Unix(0, f.StartedAfter))) &&
		(f.StartedBefore == 0 || at.Before(time.Unix(0, f.StartedBefore)))
}

// Listed is a run in a list of runs.
type Listed struct {
	RunID string
	Summary
}
