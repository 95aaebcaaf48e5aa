package dag

import (
	"context"

	"runlog/client"
	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
)

// first is the first attempt of the plan, and of this engine.
var first = events.Attempt{Logical: 1, Engine: 1}

// log is the history of one run on the server.
type log struct {
	client   *client.Client
	appender *client.Appender
	run      events.Run
}

func newLog(c *client.Client, a *client.Appender, plan *Plan, run string) *log {
	return &log{c, a, events.Run{ID: run, Tenant: plan.Tenant, Project: plan.Project, Environment: plan.Environment,
		Plan: plan.ID, PlanVersion: plan.Version, IDs: events.NewIDs(0)}}
}

// record stores an event, and returns once it is on disk. The same event may be recorded again,
// also by a later process: its key follows from the run, the step, the logical attempt and the
// type, and the server stores it once. The Appender retries until it has an answer.
func (l *log) record(ctx context.Context, eventType, step string, a events.Attempt, payload any) error {
	event, err := l.run.Event(eventType, step, a, payload)
	if err != nil {
		return err
	}
	_, err = l.appender.Append(ctx, event)
	return err
}

// snapshot returns the state of the run that follows from its events, with every event recorded so
// far.
func (l *log) snapshot(ctx context.Context) (*runlogv1.RunSnapshot, error) {
	answer, err := l.client.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: l.run.ID})
	return answer.GetSnapshot(), err
}
