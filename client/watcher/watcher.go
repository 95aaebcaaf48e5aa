// Package watcher follows runs as they go on: the newest snapshot of a run, the events of a run, or
// selected events of many runs. Each is an iterator that survives broken connections, restarts and
// changes of the leader, without a repetition and without a gap (WATCH-3, WATCH-5).
//
//	for s, err := range watcher.Snapshots(ctx, c, "run-7", "") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(s.Status(), s.LastSeq())
//	}
//
// Each turns an iterator into calls of a function.
package watcher

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// Each calls f with each value of an iterator of this package. It returns the error of the
// iterator, or the first one of f, which ends the watch.
func Each[T any](values iter.Seq2[T, error], f func(T) error) error {
	for v, err := range values {
		if err != nil {
			return err
		}
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

// Snapshots yields the snapshot of a run, then each newer one, and the same one again if its drain
// timeout ends (PRJ-9), until ctx or the iteration ends or the watch fails. A slow reader gets the
// newest and misses those between. A run that does not exist yet is waited for. resume is the token
// of an earlier Snapshot; empty: the watch begins with the current one. After a restore or a
// recovery of the cluster it begins again with the current one, which may be older.
func Snapshots(ctx context.Context, c *client.Client, runID, resume string) iter.Seq2[Snapshot, error] {
	return func(yield func(Snapshot, error) bool) {
		var last Snapshot
		for m, err := range c.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: runID, View: runlogv1.WatchView_SNAPSHOT, ResumeToken: resume}) {
			switch {
			case err != nil:
				yield(Snapshot{}, err)
				return
			case m.GetSnapshot() != nil:
				last = Snapshot{state: m.GetSnapshot(), token: m.GetResumeToken(), stale: m.GetSnapshot().GetStale()}
			case m.GetWatermark().GetStale() && last.state != nil && !last.stale:
				last.stale = true
			default: // heartbeats, and the end of the catch-up
				continue
			}
			if !yield(last, nil) {
				return
			}
		}
	}
}

// Event is one event of a watch.
type Event struct {
	*runlogv1.EventRecord
	// ResumeToken resumes the watch after this event. Empty: events of the same message follow, and
	// the token comes with the last of them. Until then, keep the token that you have.
	ResumeToken string
}

// Events yields the events of a run after a runSeq, in order, until ctx or the iteration ends or
// the watch fails. It waits for a run that does not exist yet. resume is the token of an earlier
// Event; if it is set, afterSeq is ignored.
func Events(ctx context.Context, c *client.Client, runID string, afterSeq uint64, resume string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		req := &runlogv1.WatchRunRequest{RunId: runID, AfterSeq: afterSeq, View: runlogv1.WatchView_EVENT, ResumeToken: resume}
		for m, err := range c.WatchRun(ctx, req) {
			if !pass(m.GetEvents(), m.GetResumeToken(), err, yield) {
				return
			}
		}
	}
}

// Filter selects events of many runs. Empty fields select all.
type Filter struct {
	Tenant, Project, Environment, Plan string
	// PlanVersion needs Plan.
	PlanVersion string
	// RunPrefix begins the ids of the runs.
	RunPrefix string
	// Types of events.
	Types []string
	// AfterPosition is the position in the answer to a write: the watch begins with the events that
	// were stored after it. Empty: it begins now.
	AfterPosition string
	// Resume is the token of an earlier Event with the same filter; AfterPosition is then ignored.
	Resume string
}

// Select yields the events that a filter selects, once each, in the order in which they were
// stored, until ctx or the iteration ends or the watch fails. A token never gets too old. The error
// RESUME_TOKEN_INVALID means that it belongs to another filter or another cluster, or that the
// cluster was restored or recovered since; that is so of AfterPosition, too. The caller forgets it
// and reads again what it needs.
func Select(ctx context.Context, c *client.Client, f Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		req := &runlogv1.WatchRunsRequest{TenantId: f.Tenant, ProjectId: f.Project, EnvironmentId: f.Environment, PlanId: f.Plan,
			PlanVersion: f.PlanVersion, RunIdPrefix: f.RunPrefix, Types: f.Types, AfterPosition: f.AfterPosition, ResumeToken: f.Resume,
			View: runlogv1.WatchView_EVENT}
		for m, err := range c.WatchRuns(ctx, req) {
			if !pass(m.GetEvents(), m.GetResumeToken(), err, yield) {
				return
			}
		}
	}
}

// pass yields the events of one message, and reports whether to go on.
func pass(batch *runlogv1.EventBatch, token string, err error, yield func(Event, error) bool) bool {
	if err != nil {
		yield(Event{}, err)
		return false
	}
	for i, e := range batch.GetEvents() {
		next := Event{EventRecord: e}
		if i == len(batch.GetEvents())-1 {
			next.ResumeToken = token
		}
		if !yield(next, nil) {
			return false
		}
	}
	return true
}

// Snapshot is the state of a run at one moment. It never changes, and may be shared. The zero value
// is that of no run.
type Snapshot struct {
	state *runlogv1.RunSnapshot
	token string
	stale bool
}

// RunID names the run.
func (s Snapshot) RunID() string { return s.state.GetRunId() }

// Status of the run.
func (s Snapshot) Status() runlogv1.RunStatus_Value { return s.state.GetStatus() }

// LastSeq is the highest runSeq of the events in the snapshot.
func (s Snapshot) LastSeq() uint64 { return s.state.GetLastEventSeq() }

// Digest identifies the state: lower-case hex of SHA-256 (PRJ-1).
func (s Snapshot) Digest() string { return s.state.GetDigest() }

// Stale reports whether the server reads the events of the run again, because of a gap (PRJ-12). A
// newer Snapshot follows.
func (s Snapshot) Stale() bool { return s.stale }

// ResumeToken resumes the watch after this snapshot.
func (s Snapshot) ResumeToken() string { return s.token }

// Step returns the state of a step, and false if no event of the run names it.
func (s Snapshot) Step(id string) (Step, bool) {
	for _, step := range s.state.GetSteps() {
		if step.GetStepId() == id {
			return Step{step}, true
		}
	}
	return Step{}, false
}

// Steps yields the steps, in the order in which the run first named them.
func (s Snapshot) Steps() iter.Seq[Step] {
	return func(yield func(Step) bool) {
		for _, step := range s.state.GetSteps() {
			if !yield(Step{step}) {
				return
			}
		}
	}
}

// Message returns a copy of the whole snapshot, which belongs to the caller.
func (s Snapshot) Message() *runlogv1.RunSnapshot { return proto.CloneOf(s.state) }

// Step is the state of a step in a Snapshot.
type Step struct{ state *runlogv1.StepSnapshot }

// ID names the step.
func (s Step) ID() string { return s.state.GetStepId() }

// Status of the step's current attempt.
func (s Step) Status() runlogv1.StepStatus_Value { return s.state.GetStatus() }

// LogicalAttempt is the number of the current attempt, from 1.
func (s Step) LogicalAttempt() uint32 { return s.state.GetLogicalAttemptId() }

// Message returns a copy of the state, which belongs to the caller.
func (s Step) Message() *runlogv1.StepSnapshot { return proto.CloneOf(s.state) }
