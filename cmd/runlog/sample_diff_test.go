package main

import (
	"context"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// DiffRun has two pages.
func (f *fakeServer) DiffRun(_ context.Context, req *runlogv1.DiffRunRequest) (*runlogv1.DiffRunResponse, error) {
	s := f.snapshots[req.GetRunId()]
	if s == nil {
		return nil, unknownRun(req.GetRunId())
	}
	to := &runlogv1.RunSnapshot{
		RunId: s.GetRunId(), Status: s.GetStatus(), LastEventSeq: s.GetLastEventSeq(), EngineType: s.EngineType, PlanRef: s.GetPlanRef(),
		StartedAt: s.GetStartedAt(), CompletedAt: s.GetCompletedAt(), RootCause: s.GetRootCause(), FailedSteps: s.GetFailedSteps(),
	}
	if s.GetStatus() == runlogv1.RunStatus_PAUSED {
		return &runlogv1.DiffRunResponse{From: to, To: to, FromPersistedAt: seconds(3), ToPersistedAt: seconds(3)}, nil
	}
	from := &runlogv1.RunSnapshot{RunId: s.GetRunId(), Status: runlogv1.RunStatus_RUNNING, StartedAt: s.GetStartedAt()}
	if req.GetFrom() != "" {
		from.LastEventSeq = 3
	}
	d := &runlogv1.DiffRunResponse{
		From: from, To: to, FromPersistedAt: seconds(3), ToPersistedAt: seconds(9),
		Changed:       []string{"status", "failedSteps", "engineType", "planRef", "completedAt", "rootCause", "laterField"},
		NextPageToken: "next",
	}
	if req.GetPageToken() == "" {
		for i, step := range s.GetSteps() {
			diff := &runlogv1.StepDiff{StepId: step.GetStepId(), To: step, Changed: []string{"status", "completedAt", "artifacts"}}
			if i == 1 {
				diff.From = &runlogv1.StepSnapshot{StepId: step.GetStepId(), Status: runlogv1.StepStatus_RUNNING, LogicalAttemptId: 1, StartedAt: seconds(2)}
				diff.Changed = []string{"status", "logicalAttemptId", "startedAt", "completedAt", "error"}
			}
			d.Steps = append(d.Steps, diff)
		}
		return d, nil
	}
	d.NextPageToken = ""
	d.Attempts = []*runlogv1.AttemptDiff{{StepId: "load", LogicalAttemptId: 1, To: &runlogv1.StepAttempt{
		LogicalAttemptId: 1, EngineAttemptId: proto.Uint32(2), Status: runlogv1.StepStatus_FAILED, StartedAt: seconds(2), CompletedAt: seconds(3.5),
		Error: &runlogv1.StepError{Message: proto.String("connection reset")},
	}}}
	d.Artifacts = []*runlogv1.ArtifactRef{{Uri: "s3://out/1", Kind: "table"}}
	d.Signals, d.Inconsistencies = s.GetSignals(), s.GetInconsistencies()
	d.PendingSignals = []*runlogv1.PendingSignal{{RunSeq: 5, SignalType: "RETRY_STEP", SignalId: proto.String("sig-1"), StepId: proto.String("load"), NextLogicalAttemptId: proto.Uint32(3)}}
	d.SettledSignals = []*runlogv1.PendingSignal{{RunSeq: 2, SignalType: "PAUSE", SignalId: proto.String("sig-0")}}
	return d, nil
}

// ExplainStep has two pages.
func (f *fakeServer) ExplainStep(_ context.Context, req *runlogv1.ExplainStepRequest) (*runlogv1.ExplainStepResponse, error) {
	step := func(status runlogv1.StepStatus_Value) *runlogv1.StepSnapshot {
		return &runlogv1.StepSnapshot{StepId: "load", Status: status, LogicalAttemptId: 1}
	}
	const running, failed = runlogv1.StepStatus_RUNNING, runlogv1.StepStatus_FAILED
	started := &runlogv1.ExplainedEvent{
		RunSeq: 2, EventType: "StepStarted", LogicalAttemptId: 1, EngineAttemptId: 1, PersistedAt: seconds(2), Effect: runlogv1.ExplainedEffect_CHANGED,
		AppendedBy: proto.String("worker"), AppendedByTokenId: proto.String("01963f2a-0000-7000-8000-0000000000aa"),
		Step: &runlogv1.StepDiff{StepId: "load", To: step(running), Changed: []string{"status", "logicalAttemptId", "startedAt"}},
	}
	if req.AsOfSeq != nil {
		return &runlogv1.ExplainStepResponse{Step: step(running), LastEventSeq: 2, Events: []*runlogv1.ExplainedEvent{started}}, nil
	}
	if req.GetPageToken() == "" {
		return &runlogv1.ExplainStepResponse{Step: step(failed), LastEventSeq: 9, NextPageToken: "next", Events: []*runlogv1.ExplainedEvent{started, {
			RunSeq: 3, EventType: "StepFailed", LogicalAttemptId: 1, EngineAttemptId: 2, PersistedAt: seconds(3), Effect: runlogv1.ExplainedEffect_CHANGED,
			Step:     &runlogv1.StepDiff{StepId: "load", From: step(running), To: step(failed), Changed: []string{"status", "engineAttemptId", "completedAt", "error"}},
			CausedBy: &runlogv1.EventCause{ParentEventId: proto.String("01963f2a-0000-7000-8000-000000000002"), ParentSeq: proto.Uint64(2)},
		}}}, nil
	}
	return &runlogv1.ExplainStepResponse{Step: step(failed), LastEventSeq: 9, Events: []*runlogv1.ExplainedEvent{
		{
			RunSeq: 5, EventType: "SignalAccepted", LogicalAttemptId: 1, EngineAttemptId: 1, PersistedAt: seconds(5), Effect: runlogv1.ExplainedEffect_UNCHANGED,
			AppendedBy: proto.String("jane"), CausedBy: &runlogv1.EventCause{SignalId: proto.String("sig-1")},
		},
		{
			RunSeq: 7, EventType: "StepWaitingForAttestation", LogicalAttemptId: 2, EngineAttemptId: 1, PersistedAt: seconds(7), Effect: runlogv1.ExplainedEffect_CHANGED,
			Step:      &runlogv1.StepDiff{StepId: "load", From: step(failed), To: step(runlogv1.StepStatus_WAITING_FOR_ATTESTATION), Changed: []string{"status", "logicalAttemptId"}},
			Attempts:  []*runlogv1.AttemptDiff{{StepId: "load", LogicalAttemptId: 1}},
			CausedBy:  &runlogv1.EventCause{SignalId: proto.String("sig-1"), SignalSeq: proto.Uint64(5)},
			RunStatus: &runlogv1.RunStatusChange{From: runlogv1.RunStatus_RUNNING, To: runlogv1.RunStatus_WAITING},
		},
		{
			RunSeq: 8, EventType: "StepCompleted", LogicalAttemptId: 2, EngineAttemptId: 1, PersistedAt: seconds(8), Effect: runlogv1.ExplainedEffect_INVALID,
			State: proto.String("load: WAITING_FOR_ATTESTATION"),
		},
		{
			RunSeq: 9, EventType: "StepStarted", LogicalAttemptId: 1, EngineAttemptId: 1, PersistedAt: seconds(9), Effect: runlogv1.ExplainedEffect_CHANGED,
			Attempts: []*runlogv1.AttemptDiff{{StepId: "load", LogicalAttemptId: 1}},
		},
	}}, nil
}
