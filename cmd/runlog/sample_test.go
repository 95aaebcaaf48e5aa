package main

import (
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

func unknownLeader() error {
	return &contract.Error{Reason: contract.ReasonNoLeader, Message: contract.ReasonNoLeader.Info().Help}
}

// sampleServer has a run of each kind that output has to show.
func sampleServer() *fakeServer {
	f := &fakeServer{
		snapshots: map[string]*runlogv1.RunSnapshot{"failed": failedSnapshot(), "paused": pausedSnapshot()},
		runs:      sampleRuns(),
		marks: []*runlogv1.WatchRunResponse{
			{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: &runlogv1.Watermark{
				RunId: "failed", LastEventSeq: 4, Status: runlogv1.RunStatus_PAUSED,
				Substatus: proto.String("DRAINING"), PersistedAt: seconds(4), LagMs: 12}}},
			{Kind: &runlogv1.WatchRunResponse_CaughtUp{CaughtUp: &runlogv1.CaughtUp{Watermark: &runlogv1.Watermark{LastEventSeq: 4}}}},
			{Kind: &runlogv1.WatchRunResponse_Heartbeat{Heartbeat: &runlogv1.Heartbeat{
				Watermark: &runlogv1.Watermark{RunId: "failed", LastEventSeq: 4}}}},
			{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: &runlogv1.Watermark{
				RunId: "failed", LastEventSeq: 1234567, Status: runlogv1.RunStatus_FAILED, PersistedAt: seconds(63.5), LagMs: 1500}}},
		},
	}
	f.fakeAudit = *sampleAudit()
	f.mu.events = map[string][]*runlogv1.EventRecord{"seeded": sampleEvents()}
	return f
}

func sampleEvents() []*runlogv1.EventRecord {
	record := func(seq uint64, eventType, step, payload string) *runlogv1.EventRecord {
		r := &runlogv1.EventRecord{
			EventId: "01963f2a-0000-7000-8000-00000000000" + string(rune('0'+seq)), EventType: eventType, RunId: "seeded",
			TenantId: "acme", ProjectId: "data", EnvironmentId: "prod", PlanId: "nightly", PlanVersion: "1.2",
			LogicalAttemptId: 1, EngineAttemptId: uint32(seq), EmittedAt: seconds(float64(seq) - 0.25),
			PersistedAt: seconds(float64(seq)), RunSeq: seq, ContractVersion: "2.0.0",
			PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(payload)},
		}
		if step != "" {
			r.StepId = proto.String(step)
		}
		return r
	}
	events := []*runlogv1.EventRecord{
		record(1, "RunStarted", "", `{"engineType":"temporal","status":"RUNNING","startedAt":"2026-02-11T10:30:00.75Z"}`),
		record(2, "StepStarted", "load", `{"big": 12345678901234567890, "z": 1.50, "a": "é"}`),
		record(3, "StepFailed", "load", `{"error":{"code":"E_TIMEOUT","message":"no answer from the warehouse","retryable":true}}`),
		record(4, "Custom\x1b[2J", "", "{}"),
	}
	events[1].EmittedBy = proto.String("worker-7")
	return events
}

func sampleRuns() []*runlogv1.Run {
	return []*runlogv1.Run{
		{
			RunId: "failed", TenantId: "acme", ProjectId: "data", EnvironmentId: "prod",
			PlanRef:    &runlogv1.PlanRef{PlanId: "nightly", PlanVersion: "1.2", Uri: "s3://plans/nightly.json"},
			EngineType: proto.String("temporal"), EngineRunRef: proto.String("temporal://default/wf/failed"),
			TriggeredBy: proto.String("jane"), TriggerSource: proto.String("manual"),
			Labels:  map[string]string{"team": "core", "cost": "low"},
			LastSeq: 9, CreatedAt: seconds(1), Status: runlogv1.RunStatus_FAILED,
		},
		{
			RunId: "young", TenantId: "acme", ProjectId: "data", EnvironmentId: "test",
			PlanRef: &runlogv1.PlanRef{PlanId: "nightly"}, LastSeq: 1, CreatedAt: seconds(0),
		},
		{
			RunId: "paused", TenantId: "acme", ProjectId: "data", EnvironmentId: "prod", PlanRef: &runlogv1.PlanRef{PlanId: "nightly", PlanVersion: "1.2"},
			LastSeq: 6, CreatedAt: seconds(-1), StartedAt: seconds(-0.5), Status: runlogv1.RunStatus_PAUSED, CurrentStep: proto.String("load"), StepCount: 2,
			Substatus: proto.String("DRAINING"), Message: proto.String("1 task in flight"),
		},
	}
}

func failedSnapshot() *runlogv1.RunSnapshot {
	return &runlogv1.RunSnapshot{
		RunId: "failed", TenantId: "acme", ProjectId: "data", EnvironmentId: "prod",
		PlanId: "nightly", PlanVersion: "1.2", Status: runlogv1.RunStatus_FAILED, LastEventSeq: 9,
		Steps: []*runlogv1.StepSnapshot{
			{
				StepId: "extract", Status: runlogv1.StepStatus_SUCCESS, LogicalAttemptId: 1,
				StartedAt: seconds(1), CompletedAt: seconds(3.25),
				Artifacts: []*runlogv1.ArtifactRef{{Uri: "s3://out/1", Kind: "table"}, {Uri: "s3://out/2", Kind: "log"}},
			},
			{
				StepId: "load", Status: runlogv1.StepStatus_FAILED, LogicalAttemptId: 2, EngineAttemptId: proto.Uint32(3),
				StartedAt: seconds(4), CompletedAt: seconds(64),
				Error: &runlogv1.StepError{Code: proto.String("E_TIMEOUT"), Message: proto.String("no answer from the warehouse"), Retryable: proto.Bool(true)},
			},
			{StepId: "publish", Status: runlogv1.StepStatus_SKIPPED, LogicalAttemptId: 1, Reason: proto.String("load failed")},
			{StepId: "notify", Status: runlogv1.StepStatus_RUNNING, LogicalAttemptId: 1, StartedAt: seconds(5),
				Retry: &runlogv1.StepRetry{EngineAttemptId: 2, Error: &runlogv1.StepError{Message: proto.String("no answer")}, NextAttemptAt: seconds(7)}},
		},
		FailedSteps: 2, FailedStepsNow: 1, EngineType: proto.String("temporal"), EngineRunRef: proto.String("temporal://default/wf/failed"),
		PlanRef:   &runlogv1.PlanRef{PlanId: "nightly", PlanVersion: "1.2", Uri: "s3://plans/nightly.json"},
		StartedAt: seconds(0.5), CompletedAt: seconds(65), TotalDurationMs: proto.Int64(64500),
		RootCause: &runlogv1.RootCause{StepId: proto.String("load"), Code: proto.String("E_TIMEOUT"), Message: proto.String("no answer from the warehouse")},
		Signals: []*runlogv1.SignalDecision{
			{RunSeq: 5, Accepted: true, SignalType: proto.String("RETRY_STEP"), SignalId: proto.String("sig-1"), DecidedBy: proto.String("jane"), StepId: proto.String("load")},
			{RunSeq: 6, SignalType: proto.String("CANCEL"), Reason: proto.String("not an owner")},
		},
		Inconsistencies: []*runlogv1.Inconsistency{
			{Kind: "INVALID_TRANSITION", EventId: "01963f2a-0000-7000-8000-000000000009", RunSeq: 9, State: "FAILED", Attempted: "RunResumed"},
		},
		InconsistencyCount: 101,
		Digest:             "3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8550",
	}
}

func pausedSnapshot() *runlogv1.RunSnapshot {
	return &runlogv1.RunSnapshot{
		RunId: "paused", TenantId: "acme", ProjectId: "data", EnvironmentId: "prod",
		PlanId: "nightly", PlanVersion: "1.2", Status: runlogv1.RunStatus_PAUSED, LastEventSeq: 3,
		Substatus: proto.String("DRAINING"), Message: proto.String("1 task in flight"), Stale: true, StartedAt: seconds(0.5),
		WaitingFor: runlogv1.WaitingFor_OPERATOR.Enum(),
		PendingSignals: []*runlogv1.PendingSignal{
			{SignalId: proto.String("sig-2"), SignalType: "RESUME", RunSeq: 2},
			{SignalId: proto.String("sig-3"), SignalType: "RETRY_STEP", StepId: proto.String("load"), NextLogicalAttemptId: proto.Uint32(3), RunSeq: 3},
		},
	}
}
