package main

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// attempt numbers the tries of a step. logical counts decisions to do the step; engine counts how
// often this engine has begun to carry out one decision.
type attempt struct{ logical, engine uint32 }

var first = attempt{1, 1}

// log is the history of one run on the server.
type log struct {
	client *client.Client
	run    string
	plan   *Plan
}

// record stores an event, and returns once it is on disk. The same event may be recorded again,
// also by a later process: the server derives its key from the run, the step, the logical attempt
// and the type, and stores it once. The client retries until it has an answer.
func (l *log) record(ctx context.Context, eventType, step string, a attempt, payload any) error {
	event := &runlogv1.EventWrite{
		EventType: eventType, StepId: step, LogicalAttemptId: a.logical, EngineAttemptId: a.engine,
		TenantId: l.plan.Tenant, ProjectId: l.plan.Project, EnvironmentId: l.plan.Environment,
		PlanId: l.plan.ID, PlanVersion: l.plan.Version, EmittedAt: timestamppb.Now(),
	}
	if payload != nil {
		text, err := json.Marshal(payload)
		if err != nil {
			return err
		}
		event.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: text}
	}
	_, err := l.client.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: l.run, Events: []*runlogv1.EventWrite{event}})
	return err
}

// snapshot returns the state of the run that follows from its events, with every event recorded so
// far.
func (l *log) snapshot(ctx context.Context) (*runlogv1.RunSnapshot, error) {
	answer, err := l.client.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: l.run})
	return answer.GetSnapshot(), err
}
